package interop;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.common.message.MessageExt;

/** What one push consumer was given, by the messages' keys. */
final class Seen {
    private final DefaultMQPushConsumer consumer;
    private final Map<String, Integer> counts = new ConcurrentHashMap<>();
    private final Map<String, Long> firstAtMs = new ConcurrentHashMap<>();
    private final Map<String, MessageExt> messages = new ConcurrentHashMap<>();
    private final List<String> order = new CopyOnWriteArrayList<>();

    Seen(DefaultMQPushConsumer consumer) {
        this.consumer = consumer;
    }

    DefaultMQPushConsumer consumer() {
        return consumer;
    }

    MessageListenerConcurrently concurrently() {
        return (given, context) -> {
            given.forEach(this::take);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        };
    }

    MessageListenerOrderly orderly() {
        return (given, context) -> {
            given.forEach(this::take);
            return ConsumeOrderlyStatus.SUCCESS;
        };
    }

    void take(MessageExt message) {
        String key = message.getKeys() == null ? message.getMsgId() : message.getKeys();
        messages.putIfAbsent(key, message);
        firstAtMs.putIfAbsent(key, System.currentTimeMillis());
        order.add(key);
        counts.merge(key, 1, Integer::sum);
    }

    boolean has(String key) {
        return counts.containsKey(key);
    }

    boolean hasAll(List<String> keys) {
        return counts.keySet().containsAll(keys);
    }

    int size() {
        return counts.size();
    }

    int times(String key) {
        return counts.getOrDefault(key, 0);
    }

    MessageExt message(String key) {
        return messages.get(key);
    }

    long atMs(String key) {
        return firstAtMs.get(key);
    }

    List<String> order() {
        return new ArrayList<>(order);
    }

    List<String> missing(List<String> keys) {
        List<String> left = new ArrayList<>(keys);
        left.removeAll(counts.keySet());
        return left.subList(0, Math.min(10, left.size()));
    }

    /** Keys that came more than once, with how often. */
    Map<String, Integer> repeated() {
        Map<String, Integer> more = new TreeMap<>();
        counts.forEach((key, times) -> {
            if (times > 1) {
                more.put(key, times);
            }
        });
        return more;
    }

    static List<String> keys(String prefix, int from, int to) {
        List<String> keys = new ArrayList<>();
        for (int i = from; i < to; i++) {
            keys.add(prefix + i);
        }
        return keys;
    }
}
