package interop;

import java.lang.reflect.Field;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.impl.consumer.PullAPIWrapper;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * What becomes of clients when a configured master, or its slave, is slow, stopped or dead. Each case
 * says itself what is to happen to them, so that one runs at a time.
 */
final class RoleCases {
    /** The client asks for routes every 30 s, and only then knows that a master has gone or is back. */
    private static final int ROUTE_SECONDS = 60;

    private static final int SEND_MS_MAX = 20_000; // longer than a master waits for disk and slaves

    private RoleCases() {}

    static void addTo(Catalogue all) {
        all.add("status-flush-slave-timeout", 200,
                rig -> status(rig, SendStatus.FLUSH_SLAVE_TIMEOUT, "slave pause", "slave resume"));
        all.add("status-slave-not-available", 200,
                rig -> status(rig, SendStatus.SLAVE_NOT_AVAILABLE, "slave kill", "slave start"));
        all.add("status-flush-disk-timeout", 200,
                rig -> status(rig, SendStatus.FLUSH_DISK_TIMEOUT, "disk hold", "disk release"));
        all.add("slave-goes-on", 300, RoleCases::goesOn);
        all.add("slave-behind", 300, RoleCases::behind);
        all.add("slave-offset-rewound", 300, RoleCases::rewound);
        all.add("slave-reads", 200, RoleCases::slaveReads);
        all.add("slave-orderly-goes-on", 250, RoleCases::orderlyGoesOn);
        all.add("slave-takes-sends", 250, RoleCases::takesSends);
        if (VersionCases.POPS) {
            all.add("slave-pop-goes-on", 250, given -> mended(given, VersionCases::popGoesOn));
        }
    }

    /** Whatever was stopped, killed or held comes back, also where the case has failed. */
    private static Object mended(Rig rig, Case.Body body) throws Exception {
        try {
            return body.run(rig);
        } finally {
            rig.order("mend");
        }
    }

    // Answers to sends -----------------------------------------------------------------------------

    private static Object status(Rig given, SendStatus wanted, String breaks, String mends)
            throws Exception {
        return mended(given, rig -> {
            String topic = rig.topic();
            DefaultMQProducer producer = new DefaultMQProducer(rig.unique("p"));
            producer.setSendMsgTimeout(SEND_MS_MAX);
            rig.started(producer);
            rig.sendAll(topic, "A", "before", 0, 4);
            rig.order("slave level");
            rig.order(breaks);
            for (int i = 0; i < 3; i++) {
                Check.equal("status", wanted,
                        producer.send(Rig.message(topic, "A", "during" + i)).getSendStatus());
            }
            rig.order(mends);
            List<String> keys = new ArrayList<>(Seen.keys("before", 0, 4));
            keys.addAll(Seen.keys("during", 0, 3));
            rig.await(Rig.PATIENCE_SECONDS, "SEND_OK again", () -> {
                String key = "after" + keys.size();
                keys.add(key);
                return producer.send(Rig.message(topic, "A", key)).getSendStatus()
                        == SendStatus.SEND_OK;
            });
            Seen seen = rig.consume(rig.unique("g"), topic, "*");
            rig.awaitSeen(Rig.PATIENCE_SECONDS, seen, keys);
            Check.equal("stored twice", Map.of(), seen.repeated());
            return "three times " + wanted + ", each message stored once";
        });
    }

    // A consumer at the slave ----------------------------------------------------------------------

    /** It has few messages at hand, and takes its time for each. */
    private static Seen slowly(Rig rig, String group, String topic, int msEach) throws Exception {
        DefaultMQPushConsumer made = rig.consumer(group);
        made.setConsumeThreadMin(4);
        made.setConsumeThreadMax(4);
        made.setPullThresholdForQueue(8);
        made.setPullBatchSize(4);
        made.subscribe(topic, "*");
        Seen seen = new Seen(made);
        made.registerMessageListener((MessageListenerConcurrently) (given, context) -> {
            given.forEach(seen::take);
            pause(msEach);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        made.start();
        return seen;
    }

    private static void pause(int ms) {
        try {
            Thread.sleep(ms);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    private static Object goesOn(Rig given) throws Exception {
        return mended(given, rig -> {
            String topic = rig.topic();
            rig.sendAll(topic, "A", "m", 0, 400);
            rig.order("slave level");
            Seen seen = slowly(rig, rig.unique("g"), topic, 50);
            rig.await(Rig.PATIENCE_SECONDS, "a quarter", () -> seen.size() >= 100);
            rig.order("master kill");
            int before = seen.size();
            Check.that(before < 300, "the master dies midway, not after " + before);
            rig.awaitSeen(ROUTE_SECONDS + Rig.PATIENCE_SECONDS, seen, Seen.keys("m", 0, 400));
            rig.order("master start");
            for (int i = 400; i < 500; i++) {
                sendUntilTaken(rig, Rig.message(topic, "A", "m" + i));
            }
            rig.awaitSeen(ROUTE_SECONDS, seen, Seen.keys("m", 400, 500));
            Check.equal("read twice", Map.of(), seen.repeated());
            return before + " before the master died, " + (400 - before)
                    + " at the slave, 100 after its return, none twice";
        });
    }

    /**
     * A slave that lacks messages which the consumer has read sets it back nowhere: it waits there
     * for what comes behind them, and the master's return brings it.
     */
    private static Object behind(Rig given) throws Exception {
        return mended(given, rig -> {
            String topic = rig.topic();
            String slave = rig.order("slave address");
            Seen seen = rig.consume(rig.unique("g"), topic, "*");
            rig.sendAll(topic, "A", "m", 0, 100);
            rig.awaitSeen(Rig.PATIENCE_SECONDS, seen, Seen.keys("m", 0, 100));
            rig.order("slave level");
            rig.order("slave pause");
            byte[] body = new byte[128 << 10];
            new Random(7).nextBytes(body);
            for (int i = 100; i < 300; i++) { // more than the connection to the slave takes
                rig.producer().sendOneway(new Message(topic, "A", "m" + i, body));
            }
            rig.awaitSeen(Rig.PATIENCE_SECONDS, seen, Seen.keys("m", 0, 300));
            rig.order("master kill");
            rig.order("slave resume");
            rig.await(ROUTE_SECONDS + Rig.PATIENCE_SECONDS, "pulls at the slave",
                    () -> misses(rig, slave) > 0);
            rig.order("master start");
            for (int i = 300; i < 350; i++) {
                sendUntilTaken(rig, Rig.message(topic, "A", "m" + i));
            }
            rig.awaitSeen(ROUTE_SECONDS, seen, Seen.keys("m", 0, 350));
            Check.equal("read twice", Map.of(), seen.repeated());
            return "350 read, none twice";
        });
    }

    /** Pulls per second, of the last ten, that a broker had nothing for. */
    private static double misses(Rig rig, String address) throws Exception {
        String rates =
                rig.admin().fetchBrokerRuntimeStats(address).getTable().get("getMissTps");
        return Double.parseDouble(rates.split(" ")[0]);
    }

    private static void sendUntilTaken(Rig rig, Message message) throws Exception {
        rig.await(ROUTE_SECONDS, "a send is taken", () -> {
            try {
                rig.producer().send(message);
                return true;
            } catch (org.apache.rocketmq.client.exception.MQClientException
                    | org.apache.rocketmq.client.exception.MQBrokerException
                    | org.apache.rocketmq.remoting.exception.RemotingException e) {
                return false;
            }
        });
    }

    /**
     * What a group commits at the slave is forgotten when the master is back: whoever begins then
     * reads again, from the master's offset of each queue on.
     */
    private static Object rewound(Rig given) throws Exception {
        return mended(given, rig -> {
            String topic = rig.topic();
            String group = rig.unique("g");
            rig.sendAll(topic, "A", "m", 0, 200);
            Seen first = slowly(rig, group, topic, 100);
            rig.await(Rig.PATIENCE_SECONDS, "an offset", () -> {
                try {
                    return OffsetCases.committed(rig, group, topic) >= 40;
                } catch (org.apache.rocketmq.client.exception.MQClientException e) {
                    return false; // nobody knows the group's topic of retries yet
                }
            });
            rig.order("slave level");
            rig.order("master kill");
            rig.awaitSeen(ROUTE_SECONDS + Rig.PATIENCE_SECONDS, first, Seen.keys("m", 0, 200));
            Check.equal("read twice", Map.of(), first.repeated());
            rig.await(Rig.PATIENCE_SECONDS, "the end of its work",
                    () -> finished(first, topic) == 200);
            first.consumer().shutdown(); // it commits
            Seen second = rig.consume(group, topic, "*");
            rig.await(Rig.PATIENCE_SECONDS, "the queues of who begins at the slave",
                    () -> GroupCases.queuesOf(second, topic).size() == 4);
            rig.await(ROUTE_SECONDS, "a pull of each queue", () -> finished(second, topic) == 200);
            Check.equal("read again at the slave", 0, second.size());
            second.consumer().shutdown();
            rig.order("master start");
            // Who begins finds the master; who was there would need its next route.
            Map<Integer, Long> offsets = offsetsAt(rig, group, topic);
            Set<String> again = new HashSet<>();
            for (String key : Seen.keys("m", 0, 200)) {
                MessageExt message = first.message(key);
                if (message.getQueueOffset() >= offsets.getOrDefault(message.getQueueId(), 0L)) {
                    again.add(key);
                }
            }
            Check.that(!again.isEmpty(), "the master's offsets are behind: " + offsets);
            Seen third = rig.consume(group, topic, "*");
            rig.awaitSeen(ROUTE_SECONDS, third, List.copyOf(again));
            Check.equal("read again", again, new HashSet<>(third.order()));
            return again.size() + " of 200 read again, those from the master's offsets on";
        });
    }

    /** What this consumer would commit now, of all its queues together. */
    private static long finished(Seen seen, String topic) {
        long[] sum = new long[1];
        seen.consumer().getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable()
                .forEach((queue, ignored) -> {
                    if (queue.getTopic().equals(topic)) {
                        sum[0] += seen.consumer().getDefaultMQPushConsumerImpl().getOffsetStore()
                                .readOffset(queue, org.apache.rocketmq.client.consumer.store
                                        .ReadOffsetType.READ_FROM_MEMORY);
                    }
                });
        return sum[0];
    }

    private static Map<Integer, Long> offsetsAt(Rig rig, String group, String topic)
            throws Exception {
        Map<Integer, Long> offsets = new TreeMap<>();
        rig.await(ROUTE_SECONDS, "progress at the master", () -> {
            try {
                rig.admin().examineConsumeStats(group, topic).getOffsetTable()
                        .forEach((queue, each) -> {
                            if (queue.getTopic().equals(topic)) {
                                offsets.put(queue.getQueueId(), Math.max(0, each.getConsumerOffset()));
                            }
                        });
                rig.producer().fetchPublishMessageQueues(topic);
                return rig.producer().send(Rig.message(rig.unique("other"), "A", "x")) != null;
            } catch (org.apache.rocketmq.client.exception.MQClientException
                    | org.apache.rocketmq.client.exception.MQBrokerException
                    | org.apache.rocketmq.remoting.exception.RemotingException e) {
                return false;
            }
        });
        return offsets;
    }

    // A master that sends slow consumers to its slave ----------------------------------------------

    private static Object slaveReads(Rig given) throws Exception {
        return mended(given, rig -> {
            String topic = rig.topic();
            byte[] body = new byte[8 << 10];
            new Random(8).nextBytes(body); // clients compress what is not
            for (int i = 0; i < 400; i++) { // 3 MiB, of which a sixteenth counts as in memory
                rig.send(new Message(topic, "A", "m" + i, body));
            }
            rig.order("slave level");
            String slave = rig.order("slave address");
            Map<String, Set<Long>> off = readSlowly(rig, topic);
            Check.equal("pulled from, without slaveReadEnable", Set.of(0L), union(off));
            long atSlave = given(rig, slave);
            enable(rig, slave, true);
            try {
                Map<String, Set<Long>> on = readSlowly(rig, topic);
                Check.equal("pulled from, with slaveReadEnable", Set.of(0L, 1L), union(on));
                long more = given(rig, slave) - atSlave;
                Check.that(more > 200, more + " of 400 given by the slave");
                return more + " of 400 given by the slave, the last by the master";
            } finally {
                enable(rig, slave, false);
            }
        });
    }

    private static Set<Long> union(Map<String, Set<Long>> ids) {
        Set<Long> all = new HashSet<>();
        ids.values().forEach(all::addAll);
        return all;
    }

    private static void enable(Rig rig, String slave, boolean enabled) throws Exception {
        Properties values = new Properties();
        values.setProperty("slaveReadEnable", String.valueOf(enabled));
        rig.admin().updateBrokerConfig(slave, values);
        rig.admin().updateBrokerConfig(AdminCases.master(rig), values);
    }

    private static long given(Rig rig, String address) throws Exception {
        return Long.parseLong(
                rig.admin().fetchBrokerRuntimeStats(address).getTable().get("msgGetTotalTodayNow"));
    }

    /** The ids of the brokers that each queue was to be pulled from while a new group read it. */
    private static Map<String, Set<Long>> readSlowly(Rig rig, String topic) throws Exception {
        DefaultMQPushConsumer made = rig.consumer(rig.unique("g"));
        made.setPullBatchSize(4);
        made.subscribe(topic, "*");
        Seen seen = new Seen(made);
        Map<String, Set<Long>> ids = new ConcurrentHashMap<>();
        made.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            MessageQueue queue = context.getMessageQueue();
            ids.computeIfAbsent(queue.toString(), ignored -> ConcurrentHashMap.newKeySet())
                    .add(pullsFrom(made, queue));
            messages.forEach(seen::take);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        made.start();
        rig.awaitSeen(Rig.PATIENCE_SECONDS, seen, Seen.keys("m", 0, 400));
        rig.await(Rig.PATIENCE_SECONDS, "back at the master", () -> {
            long[] elsewhere = new long[1];
            for (MessageQueue queue : GroupCases.queuesOf(seen, topic)) {
                elsewhere[0] += pullsFrom(made, queue);
            }
            return elsewhere[0] == 0;
        });
        Check.equal("read twice", Map.of(), seen.repeated());
        made.shutdown();
        return ids;
    }

    /** The id of the broker that the client pulls this queue from next; it tells nobody. */
    private static long pullsFrom(DefaultMQPushConsumer consumer, MessageQueue queue) {
        Object client = consumer.getDefaultMQPushConsumerImpl();
        try {
            Field pulls = client.getClass().getDeclaredField("pullAPIWrapper");
            pulls.setAccessible(true);
            return ((PullAPIWrapper) pulls.get(client)).recalculatePullFromWhichNode(queue);
        } catch (ReflectiveOperationException e) {
            throw new IllegalStateException(e);
        }
    }

    // What only a master can do --------------------------------------------------------------------

    /** Locks of queues are the master's: who has one goes on for half a minute. */
    private static Object orderlyGoesOn(Rig given) throws Exception {
        return mended(given, rig -> {
            String topic = rig.topic();
            rig.sendAll(topic, "A", "m", 0, 400);
            rig.order("slave level");
            DefaultMQPushConsumer made = rig.consumer(rig.unique("g"));
            made.setPullThresholdForQueue(8);
            made.setPullBatchSize(4);
            made.subscribe(topic, "*");
            Seen seen = new Seen(made);
            made.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                messages.forEach(seen::take);
                pause(300);
                return ConsumeOrderlyStatus.SUCCESS;
            });
            made.start();
            rig.await(Rig.PATIENCE_SECONDS, "a beginning", () -> seen.size() >= 20);
            rig.order("master kill");
            rig.awaitSeen(ROUTE_SECONDS + Rig.PATIENCE_SECONDS, seen, Seen.keys("m", 0, 400));
            return "all in order";
        });
    }

    private static Object takesSends(Rig given) throws Exception {
        return mended(given, rig -> {
            String topic = rig.topic();
            rig.sendAll(topic, "A", "m", 0, 4);
            rig.order("slave level");
            rig.order("master kill");
            sendUntilTaken(rig, Rig.message(topic, "A", "m4"));
            return "taken";
        });
    }
}
