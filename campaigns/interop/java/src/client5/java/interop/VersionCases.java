package interop;

import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.compression.CompressionType;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageRequestMode;
import org.apache.rocketmq.remoting.protocol.heartbeat.MessageModel;
import org.apache.rocketmq.remoting.protocol.subscription.SubscriptionGroupConfig;

/** What only the 5.3 client has, or has under other names. */
final class VersionCases {
    static final boolean POPS = true;

    private VersionCases() {}

    static void addTo(Catalogue all) {
        all.add("compress-lz4", rig -> compressed(rig, CompressionType.LZ4));
        all.add("compress-zstd", rig -> compressed(rig, CompressionType.ZSTD));
        all.add("compress-zlib", rig -> compressed(rig, CompressionType.ZLIB));
        all.add("timer-delay", VersionCases::timerDelay);
        all.add("timer-deliver-at", VersionCases::timerDeliverAt);
        all.add("timer-too-far", VersionCases::timerTooFar);
        all.add("timer-recall", VersionCases::recall);
        all.add("pop", 120, VersionCases::pop);
        all.add("pop-retry", 150, VersionCases::popRetry);
        all.add("pop-two-members", 120, VersionCases::popTwoMembers);
        all.add("auto-batch", VersionCases::autoBatch);
        all.add("heartbeat-v2", VersionCases::heartbeatV2);
        all.add("send-async-back-pressure", VersionCases::backPressure);
    }

    static MessageModel broadcasting() {
        return MessageModel.BROADCASTING;
    }

    static SubscriptionGroupConfig group(String name, boolean enabled) {
        SubscriptionGroupConfig config = new SubscriptionGroupConfig();
        config.setGroupName(name);
        config.setConsumeEnable(enabled);
        return config;
    }

    static void createTopic(DefaultMQProducer producer, String topic, int queues)
            throws org.apache.rocketmq.client.exception.MQClientException {
        producer.createTopic("TBW102", topic, queues, new HashMap<>());
    }

    /** The two clients take name and cluster in different order. */
    static void forgetTopic(Rig rig, String name) throws Exception {
        rig.admin().deleteTopicInNameServer(
                new HashSet<>(rig.admin().getNameServerAddressList()), "DefaultCluster", name);
    }

    static DefaultMQProducer tracedProducer(String group) {
        return new DefaultMQProducer(group, true, null);
    }

    static DefaultMQPushConsumer tracedConsumer(String group) {
        return new DefaultMQPushConsumer(group, true, null);
    }

    private static Object compressed(Rig rig, CompressionType type) throws Exception {
        String topic = rig.topic();
        DefaultMQProducer producer = new DefaultMQProducer(rig.unique("p"));
        producer.setCompressType(type);
        rig.started(producer);
        byte[] zeros = new byte[100_000];
        Message message = new Message(topic, "A", "zeros", zeros);
        rig.send(() -> producer.send(message));
        rig.midpoint();
        Seen seen = rig.consume(rig.unique("g"), topic, "*");
        rig.awaitSeen(Rig.PATIENCE_SECONDS, seen, List.of("zeros"));
        Check.that(Arrays.equals(zeros, seen.message("zeros").getBody()), "the same bytes");
        int stored = seen.message("zeros").getStoreSize();
        Check.that(stored < 5_000, "stored compressed, not in " + stored + " bytes");
        int flag = seen.message("zeros").getSysFlag();
        Check.equal("compression type in sysFlag", type.getCompressionFlag(), flag & 0x700);
        return stored + " bytes, sysFlag 0x" + Integer.toHexString(flag);
    }

    private static Object timerDelay(Rig rig) throws Exception {
        String topic = rig.topic();
        Seen seen = rig.consume(rig.unique("g"), topic, "*");
        Message inMs = Rig.message(topic, "A", "ms");
        inMs.setDelayTimeMs(4_000);
        Message inSeconds = Rig.message(topic, "A", "s");
        inSeconds.setDelayTimeSec(6);
        long began = System.currentTimeMillis();
        rig.send(inMs);
        rig.send(inSeconds);
        rig.midpoint();
        rig.awaitSeen(Rig.PATIENCE_SECONDS, seen, List.of("ms", "s"));
        long late = seen.atMs("ms") - began - 4_000;
        long lateSeconds = seen.atMs("s") - began - 6_000;
        Check.that(late >= -1_000 && lateSeconds >= -1_000,
                "not earlier than a tick of the wheel: " + late + " and " + lateSeconds + " ms");
        Check.equal("topic", topic, seen.message("ms").getTopic());
        if (!rig.faults()) {
            Check.equal("repeated", 0, seen.repeated().size());
        }
        return late + " and " + lateSeconds + " ms late";
    }

    private static Object timerDeliverAt(Rig rig) throws Exception {
        String topic = rig.topic();
        Seen seen = rig.consume(rig.unique("g"), topic, "*");
        long at = System.currentTimeMillis() + 5_000;
        Message message = Rig.message(topic, "A", "at");
        message.setDeliverTimeMs(at);
        rig.send(message);
        Message past = Rig.message(topic, "A", "past");
        past.setDeliverTimeMs(System.currentTimeMillis() - 5_000);
        rig.send(past);
        rig.midpoint();
        rig.awaitSeen(Rig.PATIENCE_SECONDS, seen, List.of("at", "past"));
        long late = seen.atMs("at") - at;
        Check.that(late >= -1_000, "early by " + -late + " ms");
        return late + " ms late";
    }

    private static Object timerTooFar(Rig rig) throws Exception {
        String topic = rig.topic();
        Message message = Rig.message(topic, "A", "far");
        message.setDelayTimeSec(4 * 24 * 3600);
        return Check.fails("CODE: 13", () -> rig.producer().send(message));
    }

    private static Object recall(Rig rig) throws Exception {
        String topic = rig.topic();
        Seen seen = rig.consume(rig.unique("g"), topic, "*");
        Message kept = Rig.message(topic, "A", "kept");
        kept.setDelayTimeMs(12_000);
        Message taken = Rig.message(topic, "A", "taken");
        taken.setDelayTimeMs(12_000);
        rig.send(kept);
        SendResult result = rig.send(taken);
        Check.that(result.getRecallHandle() != null, "a handle to recall it with");
        String id = rig.ask(() -> rig.producer().recallMessage(topic, result.getRecallHandle()));
        Check.equal("recalled", result.getMsgId(), id);
        rig.midpoint();
        rig.awaitSeen(Rig.PATIENCE_SECONDS, seen, List.of("kept"));
        Thread.sleep(2_500); // the other would have come by now
        Check.that(!seen.has("taken"), "a recalled message does not come");
        return "one of two came";
    }

    private static Seen popConsumer(Rig rig, String group, String topic) throws Exception {
        DefaultMQPushConsumer made = rig.consumer(group);
        made.setClientRebalance(false);
        made.subscribe(topic, "*");
        Seen seen = new Seen(made);
        made.registerMessageListener(seen.concurrently());
        made.start();
        return seen;
    }

    private static String popGroup(Rig rig, String topic) throws Exception {
        String group = rig.unique("g");
        AdminCases.createGroup(rig, group);
        rig.ask(() -> {
            rig.admin().setMessageRequestMode(AdminCases.master(rig), topic, group,
                    MessageRequestMode.POP, 8, 5_000);
            return true;
        });
        return group;
    }

    private static Object pop(Rig rig) throws Exception {
        String topic = rig.topic();
        Seen seen = popConsumer(rig, popGroup(rig, topic), topic);
        rig.sendAll(topic, "A", "p", 0, 40);
        rig.midpoint();
        rig.sendAll(topic, "A", "p", 40, 60);
        rig.awaitSeen(60, seen, Seen.keys("p", 0, 60));
        if (!rig.faults()) {
            Check.equal("repeated", 0, seen.repeated().size());
        }
        String mark = seen.message("p7").getProperty("POP_CK");
        Check.that(mark != null, "popped, not pulled");
        return "60 popped";
    }

    /** What is popped is locked in the log, which is the master's. */
    static Object popGoesOn(Rig rig) throws Exception {
        String topic = rig.topic();
        Seen seen = popConsumer(rig, popGroup(rig, topic), topic);
        rig.sendAll(topic, "A", "p", 0, 20);
        rig.awaitSeen(60, seen, Seen.keys("p", 0, 20));
        seen.consumer().suspend();
        rig.sendAll(topic, "A", "p", 20, 200);
        rig.order("slave level");
        rig.order("master kill");
        seen.consumer().resume();
        rig.awaitSeen(60 + Rig.PATIENCE_SECONDS, seen, Seen.keys("p", 0, 200));
        return "200 popped";
    }

    private static Object popRetry(Rig rig) throws Exception {
        String topic = rig.topic();
        String group = popGroup(rig, topic);
        DefaultMQPushConsumer made = rig.consumer(group);
        made.setClientRebalance(false);
        made.subscribe(topic, "*");
        List<Integer> times = new CopyOnWriteArrayList<>();
        made.registerMessageListener(
                (MessageListenerConcurrently)
                        (given, context) -> {
                            times.add(given.get(0).getReconsumeTimes());
                            return given.get(0).getReconsumeTimes() == 0
                                    ? ConsumeConcurrentlyStatus.RECONSUME_LATER
                                    : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
                        });
        made.start();
        rig.send(Rig.message(topic, "A", "again"));
        rig.await(60, "a first reading", () -> !times.isEmpty());
        rig.midpoint();
        rig.await(80, () -> "a second reading; " + times, () -> times.contains(1));
        return "read with " + times;
    }

    private static Object popTwoMembers(Rig rig) throws Exception {
        String topic = rig.topic();
        String group = popGroup(rig, topic);
        Seen one = popConsumer(rig, group, topic);
        Seen two = popConsumer(rig, group, topic);
        rig.midpoint();
        rig.sendAll(topic, "A", "p", 0, 100);
        rig.await(60, () -> "100 messages, found " + one.size() + " and " + two.size(),
                () -> one.size() + two.size() >= 100);
        return one.size() + " and " + two.size();
    }

    private static Object autoBatch(Rig rig) throws Exception {
        String topic = rig.topic();
        DefaultMQProducer producer = new DefaultMQProducer(rig.unique("p"));
        producer.setAutoBatch(true);
        rig.started(producer);
        Seen seen = rig.consume(rig.unique("g"), topic, "*");
        for (int i = 0; i < 30; i++) {
            Message message = Rig.message(topic, "A", "b" + i);
            rig.send(() -> producer.send(message));
            if (i == 15) {
                rig.midpoint();
            }
        }
        rig.awaitSeen(Rig.PATIENCE_SECONDS, seen, Seen.keys("b", 0, 30));
        return "30 in batches";
    }

    private static Object heartbeatV2(Rig rig) throws Exception {
        String topic = rig.topic();
        DefaultMQPushConsumer made = rig.consumer(rig.unique("g"));
        made.setUseHeartbeatV2(true);
        made.subscribe(topic, "TagA");
        Seen seen = new Seen(made);
        made.registerMessageListener(seen.concurrently());
        made.start();
        rig.midpoint();
        rig.sendAll(topic, "TagA", "m", 0, 10);
        rig.sendAll(topic, "TagB", "n", 0, 10);
        rig.awaitSeen(Rig.PATIENCE_SECONDS, seen, Seen.keys("m", 0, 10));
        Check.equal("read", 10, seen.size());
        return "10 of 20";
    }

    private static Object backPressure(Rig rig) throws Exception {
        String topic = rig.topic();
        DefaultMQProducer producer = new DefaultMQProducer(rig.unique("p"));
        producer.setEnableBackpressureForAsyncMode(true);
        producer.setBackPressureForAsyncSendNum(10);
        rig.started(producer);
        var good = new java.util.concurrent.atomic.AtomicInteger();
        var ended = new java.util.concurrent.CountDownLatch(100);
        for (int i = 0; i < 100; i++) {
            producer.send(Rig.message(topic, "A", "a" + i),
                    new org.apache.rocketmq.client.producer.SendCallback() {
                        @Override
                        public void onSuccess(SendResult result) {
                            good.incrementAndGet();
                            ended.countDown();
                        }

                        @Override
                        public void onException(Throwable e) {
                            ended.countDown();
                        }
                    });
        }
        Check.that(ended.await(40, java.util.concurrent.TimeUnit.SECONDS), "every callback is called");
        Check.equal("acknowledged", 100, good.get());
        return "100";
    }
}
