package interop;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Random;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;

/** Every way of sending, and what a send may hold; what was sent is read again. */
final class SendCases {
    private SendCases() {}

    static void addTo(Catalogue all) {
        all.add("send-sync", SendCases::sync);
        all.add("send-auto-create", SendCases::autoCreate);
        all.add("send-async", SendCases::async);
        all.add("send-oneway", SendCases::oneway);
        all.add("send-selector", SendCases::selector);
        all.add("send-queue", SendCases::queue);
        all.add("send-batch", SendCases::batch);
        all.add("send-batch-mixed-topics", SendCases::batchMixed);
        all.add("send-sizes", SendCases::sizes);
        all.add("send-compressed", SendCases::compressed);
        all.add("send-too-large", SendCases::tooLarge);
        all.add("send-properties", SendCases::properties);
        all.add("send-properties-too-large", SendCases::propertiesTooLarge);
        all.add("send-bad-queue", SendCases::badQueue);
        all.add("send-system-topic", SendCases::systemTopic);
        all.add("send-illegal-topic", SendCases::illegalTopic);
        all.add("send-many-threads", SendCases::manyThreads);
    }

    private static Object sync(Rig rig) throws Exception {
        String topic = rig.topic();
        Seen seen = rig.consume(rig.unique("g"), topic, "*");
        SendResult first = rig.send(Rig.message(topic, "A", "k0"));
        Check.that(first.getMsgId().matches("[0-9A-F]{32}|[0-9A-F]{56}"), "message id " + first.getMsgId());
        Check.equal("id", first.getMsgId(), first.getTransactionId());
        Check.that(
                first.getOffsetMsgId().matches("[0-9A-F]{32}"), "offset id " + first.getOffsetMsgId());
        Check.equal("region", "DefaultRegion", first.getRegionId());
        Check.that(first.isTraceOn(), "TRACE_ON");
        rig.sendAll(topic, "A", "k", 1, 10);
        rig.midpoint();
        rig.sendAll(topic, "A", "k", 10, 20);
        rig.awaitSeen(Rig.PATIENCE_SECONDS, seen, Seen.keys("k", 0, 20));
        Check.equal("body", "body of k7", new String(seen.message("k7").getBody()));
        Check.equal("message id read", first.getMsgId(), seen.message("k0").getMsgId());
        return "20 sent and read, " + seen.repeated().size() + " repeated";
    }

    private static Object autoCreate(Rig rig) throws Exception {
        String topic = rig.unique("t");
        rig.send(Rig.message(topic, "A", "first"));
        int queues = rig.queues(topic).size();
        Check.equal("queues", 4, queues);
        Seen seen = rig.consume(rig.unique("g"), topic, "*");
        rig.midpoint();
        rig.awaitSeen(Rig.PATIENCE_SECONDS, seen, List.of("first"));
        return queues + " queues";
    }

    private static Object async(Rig rig) throws Exception {
        String topic = rig.topic();
        Seen seen = rig.consume(rig.unique("g"), topic, "*");
        int good = sendAsync(rig, topic, 0, 50);
        rig.midpoint();
        good += sendAsync(rig, topic, 50, 100);
        if (!rig.faults()) {
            Check.equal("callbacks of success", 100, good);
            rig.awaitSeen(Rig.PATIENCE_SECONDS, seen, Seen.keys("a", 0, 100));
        } else {
            int acknowledged = good;
            rig.await(Rig.PATIENCE_SECONDS, "what was acknowledged", () -> seen.size() >= acknowledged);
        }
        return good + " acknowledged, " + seen.size() + " read";
    }

    private static int sendAsync(Rig rig, String topic, int from, int to) throws Exception {
        CountDownLatch ended = new CountDownLatch(to - from);
        AtomicInteger good = new AtomicInteger();
        for (int i = from; i < to; i++) {
            SendCallback callback =
                    new SendCallback() {
                        @Override
                        public void onSuccess(SendResult result) {
                            good.incrementAndGet();
                            ended.countDown();
                        }

                        @Override
                        public void onException(Throwable e) {
                            ended.countDown();
                        }
                    };
            rig.producer().send(Rig.message(topic, "A", "a" + i), callback);
        }
        Check.that(ended.await(40, TimeUnit.SECONDS), "every callback is called");
        return good.get();
    }

    private static Object oneway(Rig rig) throws Exception {
        String topic = rig.topic();
        Seen seen = rig.consume(rig.unique("g"), topic, "*");
        for (int i = 0; i < 10; i++) {
            rig.producer().sendOneway(Rig.message(topic, "A", "o" + i));
        }
        rig.awaitSeen(Rig.PATIENCE_SECONDS, seen, Seen.keys("o", 0, 10));
        rig.midpoint();
        return "10 read";
    }

    private static Object selector(Rig rig) throws Exception {
        String topic = rig.topic();
        for (int i = 0; i < 8; i++) {
            int wanted = i % 4;
            Message message = Rig.message(topic, "A", "s" + i);
            SendResult result =
                    rig.send(() -> rig.producer().send(message, (q, m, a) -> q.get(wanted), null));
            Check.equal("queue", wanted, result.getMessageQueue().getQueueId());
            Check.equal("offset in its queue", (long) (i / 4), result.getQueueOffset());
            if (i == 3) {
                rig.midpoint();
            }
        }
        return "8 where they were meant to go";
    }

    private static Object queue(Rig rig) throws Exception {
        String topic = rig.topic();
        MessageQueue wanted = rig.queues(topic).get(2);
        for (int i = 0; i < 6; i++) {
            Message message = Rig.message(topic, "A", "q" + i);
            SendResult result = rig.send(() -> rig.producer().send(message, wanted));
            Check.equal("queue", wanted, result.getMessageQueue());
            Check.equal("offset", (long) i, result.getQueueOffset());
            if (i == 2) {
                rig.midpoint();
            }
        }
        return "offsets 0 to 5 in one queue";
    }

    private static Object batch(Rig rig) throws Exception {
        String topic = rig.topic();
        Seen seen = rig.consume(rig.unique("g"), topic, "*");
        List<Message> first = batchOf(topic, 0, 100);
        SendResult result = rig.send(() -> rig.producer().send(first));
        Set<String> ids = new HashSet<>(Arrays.asList(result.getMsgId().split(",")));
        Check.equal("message ids", 100, ids.size());
        Check.equal("offset ids", 100, result.getOffsetMsgId().split(",").length);
        rig.midpoint();
        MessageQueue queue = rig.queues(topic).get(1);
        List<Message> second = batchOf(topic, 100, 103);
        SendResult placed = rig.send(() -> rig.producer().send(second, queue));
        Check.equal("queue", queue, placed.getMessageQueue());
        rig.awaitSeen(Rig.PATIENCE_SECONDS, seen, Seen.keys("b", 0, 103));
        return "100 and 3";
    }

    private static List<Message> batchOf(String topic, int from, int to) {
        List<Message> messages = new ArrayList<>();
        for (int i = from; i < to; i++) {
            messages.add(Rig.message(topic, "B", "b" + i));
        }
        return messages;
    }

    private static Object batchMixed(Rig rig) throws Exception {
        List<Message> mixed =
                List.of(Rig.message(rig.topic(), "A", "x"), Rig.message(rig.topic(), "A", "y"));
        return Check.fails("MessageBatch", () -> rig.producer().send(mixed));
    }

    private static Object sizes(Rig rig) throws Exception {
        String topic = rig.topic();
        Seen seen = rig.consume(rig.unique("g"), topic, "*");
        int[] sizes = {1, 100, 4095, 4096, 10_000, 1 << 20, (4 << 20) - 3_000};
        for (int size : sizes) {
            byte[] body = new byte[size];
            new Random(size).nextBytes(body);
            Message message = new Message(topic, "A", "size" + size, body);
            rig.send(() -> rig.producer().send(message, 10_000));
            if (size == 4096) {
                rig.midpoint();
            }
        }
        for (int size : sizes) {
            rig.awaitSeen(Rig.PATIENCE_SECONDS, seen, List.of("size" + size));
            byte[] body = new byte[size];
            new Random(size).nextBytes(body);
            Check.that(
                    Arrays.equals(body, seen.message("size" + size).getBody()),
                    "the same " + size + " bytes");
        }
        return "1 to " + sizes[sizes.length - 1] + " bytes";
    }

    private static Object compressed(Rig rig) throws Exception {
        String topic = rig.topic();
        Seen seen = rig.consume(rig.unique("g"), topic, "*");
        byte[] zeros = new byte[1 << 20];
        rig.send(new Message(topic, "A", "zeros", zeros));
        rig.midpoint();
        rig.awaitSeen(Rig.PATIENCE_SECONDS, seen, List.of("zeros"));
        Check.that(Arrays.equals(zeros, seen.message("zeros").getBody()), "the same bytes");
        int stored = seen.message("zeros").getStoreSize();
        Check.that(stored < 10_000, "stored compressed, not in " + stored + " bytes");
        return stored + " bytes stored of " + zeros.length;
    }

    private static Object tooLarge(Rig rig) throws Exception {
        String topic = rig.topic();
        byte[] noise = new byte[(4 << 20) - 1];
        new Random(5).nextBytes(noise);
        Check.fails("CODE: 13", () -> rig.producer().send(new Message(topic, new byte[(4 << 20) + 1])));
        DefaultMQProducer wide = new DefaultMQProducer(rig.unique("p"));
        wide.setMaxMessageSize(16 << 20);
        wide.setSendMsgTimeout(10_000);
        rig.started(wide);
        byte[] larger = new byte[5 << 20];
        new Random(6).nextBytes(larger);
        String told = Check.fails("CODE: 13", () -> wide.send(new Message(topic, larger)));
        rig.send(Rig.message(topic, "A", "after"));
        return told;
    }

    private static Object properties(Rig rig) throws Exception {
        String topic = rig.topic();
        Seen seen = rig.consume(rig.unique("g"), topic, "*");
        Message message =
                new Message(topic, "标签", "unicode", "中文 naïve".getBytes(StandardCharsets.UTF_8));
        message.putUserProperty("naïve", "wert é 中 = ; |");
        message.putUserProperty("long", "x".repeat(20_000));
        message.setFlag(12345);
        message.setBuyerId("buyer");
        rig.send(message);
        rig.midpoint();
        rig.awaitSeen(Rig.PATIENCE_SECONDS, seen, List.of("unicode"));
        var read = seen.message("unicode");
        Check.equal("property", "wert é 中 = ; |", read.getUserProperty("naïve"));
        Check.equal("length", 20_000, read.getUserProperty("long").length());
        Check.equal("tags", "标签", read.getTags());
        Check.equal("flag", 12345, read.getFlag());
        Check.equal("buyer", "buyer", read.getBuyerId());
        Check.equal("body", "中文 naïve", new String(read.getBody(), StandardCharsets.UTF_8));
        return "unicode, long, flag";
    }

    private static Object propertiesTooLarge(Rig rig) throws Exception {
        String topic = rig.topic();
        Message message = new Message(topic, "x".getBytes());
        message.putUserProperty("big", "x".repeat(33_000));
        return Check.fails("CODE: 13", () -> rig.producer().send(message));
    }

    private static Object badQueue(Rig rig) throws Exception {
        String topic = rig.topic();
        String broker = rig.queues(topic).get(0).getBrokerName();
        MessageQueue none = new MessageQueue(topic, broker, 99);
        return Check.fails("CODE: 29", () -> rig.producer().send(Rig.message(topic, "A", "x"), none));
    }

    private static Object systemTopic(Rig rig) throws Exception {
        Message half = new Message("RMQ_SYS_TRANS_HALF_TOPIC", "x".getBytes());
        Message delayed = new Message("SCHEDULE_TOPIC_XXXX", "x".getBytes());
        Check.fails("", () -> rig.producer().send(half));
        return Check.fails("", () -> rig.producer().send(delayed));
    }

    private static Object illegalTopic(Rig rig) throws Exception {
        Message dotted = new Message("bad.topic!", "x".getBytes());
        Message lengthy = new Message("t".repeat(300), "x".getBytes());
        Check.fails("", () -> rig.producer().send(lengthy));
        return Check.fails("illegal", () -> rig.producer().send(dotted));
    }

    private static Object manyThreads(Rig rig) throws Exception {
        String topic = rig.topic();
        Seen seen = rig.consume(rig.unique("g"), topic, "*");
        rig.producer();
        List<Thread> threads = new ArrayList<>();
        AtomicInteger failed = new AtomicInteger();
        for (int t = 0; t < 4; t++) {
            String prefix = "t" + t + "-";
            Thread thread =
                    new Thread(
                            () -> {
                                try {
                                    rig.sendAll(topic, "A", prefix, 0, 100);
                                } catch (Exception e) {
                                    failed.incrementAndGet();
                                }
                            });
            thread.start();
            threads.add(thread);
        }
        rig.midpoint();
        for (Thread thread : threads) {
            thread.join();
        }
        Check.equal("threads whose sends failed", 0, failed.get());
        for (int t = 0; t < 4; t++) {
            rig.awaitSeen(Rig.PATIENCE_SECONDS, seen, Seen.keys("t" + t + "-", 0, 100));
        }
        long stored = 0;
        for (MessageQueue each : rig.queues(topic)) {
            stored += rig.ask(() -> rig.producer().maxOffset(each));
        }
        Check.equal("messages stored", 400L, stored);
        return "400 stored once";
    }
}
