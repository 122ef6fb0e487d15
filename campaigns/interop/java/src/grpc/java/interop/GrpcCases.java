package interop;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientException;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.FilterExpressionType;
import org.apache.rocketmq.client.apis.consumer.MessageListener;
import org.apache.rocketmq.client.apis.consumer.PushConsumer;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.Message;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.SendReceipt;
import org.apache.rocketmq.client.apis.producer.Transaction;
import org.apache.rocketmq.client.apis.producer.TransactionChecker;
import org.apache.rocketmq.client.apis.producer.TransactionResolution;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.remoting.protocol.subscription.SubscriptionGroupConfig;

/** What the clients of 5.x do, which speak gRPC to RocketMQ's proxy. */
final class GrpcCases {
    private static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();
    private static final int SHORT_S = 15;

    private GrpcCases() {}

    static void addTo(Catalogue all) {
        all.add("grpc-push", GrpcCases::push);
        all.add("grpc-push-two-members", GrpcCases::twoMembers);
        all.add("grpc-tags", GrpcCases::tags);
        all.add("grpc-sql", GrpcCases::sql);
        all.add("grpc-simple", 150, GrpcCases::simple);
        all.add("grpc-simple-invisible", 150, GrpcCases::invisible);
        all.add("grpc-fifo", GrpcCases::fifo);
        all.add("grpc-delay", GrpcCases::delay);
        all.add("grpc-recall", 150, GrpcCases::recall);
        all.add("grpc-transaction", 240, GrpcCases::transaction);
        all.add("grpc-retry", 150, GrpcCases::retry);
        all.add("grpc-dead-letter", 150, GrpcCases::deadLetter);
    }

    /** What was consumed, by the messages' keys. */
    private static final class Consumed {
        final Map<String, Integer> attempts = new ConcurrentHashMap<>();
        final Map<String, Long> firstAtMs = new ConcurrentHashMap<>();
        final List<String> order = new CopyOnWriteArrayList<>();

        void take(MessageView message) {
            String key = keyOf(message);
            if (firstAtMs.putIfAbsent(key, System.currentTimeMillis()) == null) {
                order.add(key);
            }
            attempts.merge(key, message.getDeliveryAttempt(), Math::max);
        }

        MessageListener successful() {
            return message -> {
                take(message);
                return ConsumeResult.SUCCESS;
            };
        }

        Set<String> missing(List<String> keys) {
            Set<String> missing = new HashSet<>(keys);
            missing.removeAll(firstAtMs.keySet());
            return missing;
        }

        void await(Rig rig, List<String> keys) throws Exception {
            rig.await(Rig.PATIENCE_SECONDS, () -> "missing " + missing(keys),
                    () -> missing(keys).isEmpty());
        }
    }

    private static String keyOf(MessageView message) {
        return message.getKeys().iterator().next();
    }

    private static List<String> keys(String prefix, int from, int to) {
        List<String> keys = new ArrayList<>();
        for (int i = from; i < to; i++) {
            keys.add(prefix + i);
        }
        return keys;
    }

    // Topics, groups and clients -----------------------------------------------------------------

    private static String topic(Rig rig, String type) throws Exception {
        String topic = rig.unique("t");
        TopicConfig config = new TopicConfig(topic, 4, 4);
        config.setAttributes(Map.of("+message.type", type));
        rig.ask(() -> {
            rig.admin().createAndUpdateTopicConfig(AdminCases.master(rig), config);
            return true;
        });
        rig.await(Rig.PATIENCE_SECONDS, "a route of " + topic, () -> {
            try {
                return !rig.admin().examineTopicRouteInfo(topic).getQueueDatas().isEmpty();
            } catch (org.apache.rocketmq.client.exception.MQClientException e) {
                return false;
            }
        });
        return topic;
    }

    private static String group(Rig rig, boolean inOrder, int retries) throws Exception {
        SubscriptionGroupConfig config = new SubscriptionGroupConfig();
        config.setGroupName(rig.unique("g"));
        config.setConsumeMessageOrderly(inOrder);
        config.setRetryMaxTimes(retries);
        rig.ask(() -> {
            rig.admin().createAndUpdateSubscriptionGroupConfig(AdminCases.master(rig), config);
            return true;
        });
        return config.getGroupName();
    }

    private static ClientConfiguration configuration() {
        return ClientConfiguration.newBuilder()
                .setEndpoints(System.getProperty("interop.proxy"))
                .enableSsl(false)
                .setRequestTimeout(Duration.ofSeconds(10))
                .build();
    }

    /** While a leader dies a call is repeated; also one that makes a client, which asks the proxy. */
    private static <T> T insist(Rig rig, Callable<T> call) throws Exception {
        long deadline = System.currentTimeMillis() + 60_000;
        while (true) {
            try {
                return call.call();
            } catch (ClientException | IllegalStateException e) {
                if (!rig.faults() || System.currentTimeMillis() > deadline) {
                    throw e;
                }
                Thread.sleep(200);
            }
        }
    }

    private static void closing(Rig rig, AutoCloseable client) {
        rig.closing(() -> {
            try {
                client.close();
            } catch (Exception e) {
                throw new IllegalStateException("a client can't be closed", e);
            }
        });
    }

    private static Producer producer(Rig rig, String topic, TransactionChecker checker)
            throws Exception {
        Producer producer = insist(rig, () -> {
            var builder = PROVIDER.newProducerBuilder()
                    .setClientConfiguration(configuration())
                    .setTopics(topic);
            return (checker == null ? builder : builder.setTransactionChecker(checker)).build();
        });
        closing(rig, producer);
        return producer;
    }

    private static PushConsumer push(
            Rig rig, String group, String topic, FilterExpression filter, MessageListener listener)
            throws Exception {
        PushConsumer consumer = insist(rig, () -> PROVIDER.newPushConsumerBuilder()
                .setClientConfiguration(configuration())
                .setConsumerGroup(group)
                .setSubscriptionExpressions(Collections.singletonMap(topic, filter))
                .setMessageListener(listener)
                .build());
        closing(rig, consumer);
        return consumer;
    }

    private static SimpleConsumer simple(Rig rig, String group, String topic) throws Exception {
        SimpleConsumer consumer = insist(rig, () -> PROVIDER.newSimpleConsumerBuilder()
                .setClientConfiguration(configuration())
                .setConsumerGroup(group)
                .setAwaitDuration(Duration.ofSeconds(5))
                .setSubscriptionExpressions(Map.of(topic, FilterExpression.SUB_ALL))
                .build());
        closing(rig, consumer);
        return consumer;
    }

    private static MessageBuilder message(String topic, String key) {
        return PROVIDER.newMessageBuilder()
                .setTopic(topic)
                .setKeys(key)
                .setBody(("body of " + key).getBytes(StandardCharsets.UTF_8));
    }

    private static SendReceipt send(Rig rig, Producer producer, Message message) throws Exception {
        return insist(rig, () -> producer.send(message));
    }

    private static void sendAll(Rig rig, Producer producer, String topic, int from, int to)
            throws Exception {
        for (String key : keys("m", from, to)) {
            send(rig, producer, message(topic, key).setTag("TagA").build());
        }
    }

    // Cases --------------------------------------------------------------------------------------

    private static Object push(Rig rig) throws Exception {
        String topic = topic(rig, "NORMAL");
        Consumed consumed = new Consumed();
        push(rig, group(rig, false, 16), topic, FilterExpression.SUB_ALL, consumed.successful());
        Producer producer = producer(rig, topic, null);
        sendAll(rig, producer, topic, 0, 20);
        rig.midpoint();
        sendAll(rig, producer, topic, 20, 40);
        consumed.await(rig, keys("m", 0, 40));
        return consumed.order.size() + " messages";
    }

    private static Object twoMembers(Rig rig) throws Exception {
        String topic = topic(rig, "NORMAL");
        String group = group(rig, false, 16);
        Consumed one = new Consumed();
        Consumed other = new Consumed();
        push(rig, group, topic, FilterExpression.SUB_ALL, one.successful());
        push(rig, group, topic, FilterExpression.SUB_ALL, other.successful());
        Producer producer = producer(rig, topic, null);
        sendAll(rig, producer, topic, 0, 30);
        rig.midpoint();
        sendAll(rig, producer, topic, 30, 60);
        List<String> all = keys("m", 0, 60);
        rig.await(Rig.PATIENCE_SECONDS, "all of 60", () -> {
            Set<String> missing = one.missing(all);
            missing.retainAll(other.missing(all));
            return missing.isEmpty();
        });
        Check.that(!one.order.isEmpty() && !other.order.isEmpty(), "both have some");
        return one.order.size() + " and " + other.order.size();
    }

    private static Object tags(Rig rig) throws Exception {
        String topic = topic(rig, "NORMAL");
        Consumed consumed = new Consumed();
        FilterExpression filter = new FilterExpression("TagA || 标签", FilterExpressionType.TAG);
        push(rig, group(rig, false, 16), topic, filter, consumed.successful());
        Producer producer = producer(rig, topic, null);
        send(rig, producer, message(topic, "a").setTag("TagA").build());
        send(rig, producer, message(topic, "b").setTag("TagB").build());
        send(rig, producer, message(topic, "none").build());
        rig.midpoint();
        send(rig, producer, message(topic, "c").setTag("标签").build());
        send(rig, producer, message(topic, "d").setTag("TagA").build());
        consumed.await(rig, List.of("a", "c", "d"));
        Check.equal("what has such a tag", Set.of("a", "c", "d"), consumed.firstAtMs.keySet());
        return "3 of 5";
    }

    private static Object sql(Rig rig) throws Exception {
        String topic = topic(rig, "NORMAL");
        Consumed consumed = new Consumed();
        FilterExpression filter =
                new FilterExpression("a > 5 AND TAGS = 'TagA'", FilterExpressionType.SQL92);
        push(rig, group(rig, false, 16), topic, filter, consumed.successful());
        Producer producer = producer(rig, topic, null);
        for (int i = 0; i < 10; i++) {
            if (i == 5) {
                rig.midpoint();
            }
            Message message = message(topic, "m" + i)
                    .setTag("TagA").addProperty("a", String.valueOf(i)).build();
            send(rig, producer, message);
        }
        consumed.await(rig, keys("m", 6, 10));
        Check.equal("what matches", new HashSet<>(keys("m", 6, 10)), consumed.firstAtMs.keySet());
        return "4 of 10";
    }

    private static Object simple(Rig rig) throws Exception {
        String topic = topic(rig, "NORMAL");
        SimpleConsumer consumer = simple(rig, group(rig, false, 16), topic);
        Producer producer = producer(rig, topic, null);
        sendAll(rig, producer, topic, 0, 20);
        rig.midpoint();
        sendAll(rig, producer, topic, 20, 40);
        Consumed consumed = new Consumed();
        List<String> all = keys("m", 0, 40);
        rig.await(Rig.PATIENCE_SECONDS, () -> "missing " + consumed.missing(all), () -> {
            receiveAndAcknowledge(rig, consumer, consumed);
            return consumed.missing(all).isEmpty();
        });
        if (!rig.faults()) { // an acknowledgement may be lost with its leader
            long end = System.currentTimeMillis() + (SHORT_S + 5) * 1_000L;
            while (System.currentTimeMillis() < end) {
                Check.equal("acknowledged and here again", 0,
                        receiveAndAcknowledge(rig, consumer, consumed));
            }
        }
        return consumed.order.size() + " messages";
    }

    private static int receiveAndAcknowledge(Rig rig, SimpleConsumer consumer, Consumed consumed)
            throws Exception {
        List<MessageView> received = insist(
                rig, () -> consumer.receive(16, Duration.ofSeconds(SHORT_S)));
        for (MessageView message : received) {
            try {
                consumer.ack(message);
                consumed.take(message);
            } catch (ClientException e) {
                if (!rig.faults()) {
                    throw e;
                }
            }
        }
        return received.size();
    }

    /** What is not acknowledged comes again, when its time is over and not before. */
    private static Object invisible(Rig rig) throws Exception {
        String topic = topic(rig, "NORMAL");
        SimpleConsumer consumer = simple(rig, group(rig, false, 16), topic);
        Producer producer = producer(rig, topic, null);
        send(rig, producer, message(topic, "m").build());
        MessageView first = receiveOne(rig, consumer);
        insist(rig, () -> {
            consumer.changeInvisibleDuration(first, Duration.ofSeconds(SHORT_S));
            return true;
        });
        long changedMs = System.currentTimeMillis();
        rig.midpoint();
        MessageView again = receiveOne(rig, consumer);
        long afterMs = System.currentTimeMillis() - changedMs;
        Check.equal("the message", "m", keyOf(again));
        Check.that(afterMs >= SHORT_S * 1_000L - 500, "not before its time: " + afterMs + " ms");
        Check.that(again.getDeliveryAttempt() >= 2, "attempt " + again.getDeliveryAttempt());
        insist(rig, () -> {
            consumer.ack(again);
            return true;
        });
        return "after " + afterMs + " ms";
    }

    private static MessageView receiveOne(Rig rig, SimpleConsumer consumer) throws Exception {
        List<MessageView> received = new ArrayList<>();
        rig.await(Rig.PATIENCE_SECONDS, "a message", () -> {
            received.addAll(insist(rig, () -> consumer.receive(1, Duration.ofSeconds(30))));
            return !received.isEmpty();
        });
        return received.get(0);
    }

    private static Object fifo(Rig rig) throws Exception {
        String topic = topic(rig, "FIFO");
        Consumed consumed = new Consumed();
        push(rig, group(rig, true, 16), topic, FilterExpression.SUB_ALL, consumed.successful());
        Producer producer = producer(rig, topic, null);
        List<String> all = new ArrayList<>();
        for (int i = 0; i < 16; i++) {
            if (i == 8) {
                rig.midpoint();
            }
            for (String sharding : List.of("a", "b", "c")) {
                all.add(sharding + i);
                send(rig, producer, message(topic, sharding + i).setMessageGroup(sharding).build());
            }
        }
        consumed.await(rig, all);
        for (String sharding : List.of("a", "b", "c")) {
            List<String> order = consumed.order.stream()
                    .filter(key -> key.startsWith(sharding)).toList();
            Check.equal("order of " + sharding, keys(sharding, 0, 16), order);
        }
        return "three groups in order";
    }

    private static Object delay(Rig rig) throws Exception {
        String topic = topic(rig, "DELAY");
        Consumed consumed = new Consumed();
        push(rig, group(rig, false, 16), topic, FilterExpression.SUB_ALL, consumed.successful());
        Producer producer = producer(rig, topic, null);
        Map<String, Long> due = new HashMap<>();
        for (int i = 0; i < 10; i++) {
            if (i == 5) {
                rig.midpoint();
            }
            long at = System.currentTimeMillis() + 6_000;
            String key = "m" + i;
            due.put(key, at);
            Message message = message(topic, key).setDeliveryTimestamp(at).build();
            send(rig, producer, message);
        }
        consumed.await(rig, keys("m", 0, 10));
        long earliest = due.keySet().stream()
                .mapToLong(key -> consumed.firstAtMs.get(key) - due.get(key)).min().orElseThrow();
        Check.that(earliest >= 0, "none before its time: " + earliest + " ms");
        return "at least " + earliest + " ms late";
    }

    private static Object recall(Rig rig) throws Exception {
        String topic = topic(rig, "DELAY");
        Consumed consumed = new Consumed();
        push(rig, group(rig, false, 16), topic, FilterExpression.SUB_ALL, consumed.successful());
        Producer producer = producer(rig, topic, null);
        int seconds = rig.faults() ? 60 : 20;
        long at = System.currentTimeMillis() + seconds * 1_000L;
        List<String> handles = new ArrayList<>();
        for (String key : keys("m", 0, 10)) {
            Message message = message(topic, key).setDeliveryTimestamp(at).build();
            handles.add(send(rig, producer, message).getRecallHandle());
        }
        rig.midpoint();
        for (int i = 0; i < 10; i += 2) {
            String handle = handles.get(i);
            insist(rig, () -> producer.recallMessage(topic, handle));
        }
        List<String> left = List.of("m1", "m3", "m5", "m7", "m9");
        rig.await(Rig.PATIENCE_SECONDS + seconds, () -> "missing " + consumed.missing(left),
                () -> consumed.missing(left).isEmpty());
        Thread.sleep(5_000); // what was recalled would be here by now
        Check.equal("what is left", new HashSet<>(left), consumed.firstAtMs.keySet());
        return "5 of 10 recalled";
    }

    /** Of four, the first is committed, the second rolled back, the others are decided by checks. */
    private static Object transaction(Rig rig) throws Exception {
        String topic = topic(rig, "TRANSACTION");
        Consumed consumed = new Consumed();
        push(rig, group(rig, false, 16), topic, FilterExpression.SUB_ALL, consumed.successful());
        Set<String> checked = ConcurrentHashMap.newKeySet();
        Producer producer = producer(rig, topic, message -> {
            checked.add(keyOf(message));
            return isCommitted(keyOf(message))
                    ? TransactionResolution.COMMIT : TransactionResolution.ROLLBACK;
        });
        List<String> committed = new ArrayList<>();
        for (int i = 0; i < 24; i++) {
            if (i == 12) {
                rig.midpoint();
            }
            String key = "m" + i;
            if (isCommitted(key)) {
                committed.add(key);
            }
            Transaction transaction = begin(rig, producer, message(topic, key).build());
            try {
                if (i % 4 == 0) {
                    transaction.commit();
                } else if (i % 4 == 1) {
                    transaction.rollback();
                }
            } catch (ClientException e) { // then a check decides
                if (!rig.faults()) {
                    throw e;
                }
            }
        }
        rig.await(120, () -> "missing " + consumed.missing(committed),
                () -> consumed.missing(committed).isEmpty());
        Thread.sleep(5_000);
        Check.equal("committed", new HashSet<>(committed), consumed.firstAtMs.keySet());
        Check.that(!checked.isEmpty(), "some were checked");
        return committed.size() + " committed, " + checked.size() + " checked";
    }

    private static boolean isCommitted(String key) {
        return Integer.parseInt(key.substring(1)) % 2 == 0;
    }

    /** A transaction takes one message once: what fails is begun anew. */
    private static Transaction begin(Rig rig, Producer producer, Message message)
            throws Exception {
        return insist(rig, () -> {
            Transaction transaction = producer.beginTransaction();
            producer.send(message, transaction);
            return transaction;
        });
    }

    private static Object retry(Rig rig) throws Exception {
        String topic = topic(rig, "NORMAL");
        Consumed consumed = new Consumed();
        push(rig, group(rig, false, 16), topic, FilterExpression.SUB_ALL, message -> {
            consumed.take(message);
            return message.getDeliveryAttempt() < 3 ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
        });
        Producer producer = producer(rig, topic, null);
        sendAll(rig, producer, topic, 0, 4);
        rig.midpoint();
        sendAll(rig, producer, topic, 4, 8);
        rig.await(Rig.PATIENCE_SECONDS * 2, () -> "attempts " + consumed.attempts,
                () -> consumed.attempts.size() == 8
                        && consumed.attempts.values().stream().allMatch(count -> count >= 3));
        return "each at its third attempt";
    }

    private static Object deadLetter(Rig rig) throws Exception {
        String topic = topic(rig, "NORMAL");
        String group = group(rig, false, 1);
        Consumed consumed = new Consumed();
        push(rig, group, topic, FilterExpression.SUB_ALL, message -> {
            consumed.take(message);
            return ConsumeResult.FAILURE;
        });
        Producer producer = producer(rig, topic, null);
        sendAll(rig, producer, topic, 0, 3);
        rig.midpoint();
        sendAll(rig, producer, topic, 3, 5);
        consumed.await(rig, keys("m", 0, 5));
        rig.await(Rig.PATIENCE_SECONDS * 2, "five dead letters", () -> dead(rig, group) >= 5);
        Check.that(consumed.attempts.values().stream().allMatch(count -> count >= 2),
                "two attempts of each: " + consumed.attempts);
        return dead(rig, group) + " dead letters";
    }

    private static long dead(Rig rig, String group) throws Exception {
        try {
            return rig.admin().examineTopicStats("%DLQ%" + group).getOffsetTable().values().stream()
                    .mapToLong(each -> each.getMaxOffset()).sum();
        } catch (org.apache.rocketmq.client.exception.MQClientException
                | org.apache.rocketmq.client.exception.MQBrokerException e) {
            return 0; // it is made by the first
        }
    }
}
