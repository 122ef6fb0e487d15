package interop;

import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** What a listener refuses comes again, later or never; delays by level. */
final class RetryCases {
    private RetryCases() {}

    static void addTo(Catalogue all) {
        all.add("retry", RetryCases::retry);
        all.add("retry-then-dead-letter", RetryCases::deadLetter);
        all.add("send-back-to-dead-letter", RetryCases::sendBack);
        all.add("retry-orderly-dead-letter", RetryCases::orderlyDeadLetter);
        all.add("delay-levels", RetryCases::levels);
        all.add("delay-level-above-maximum", RetryCases::levelAbove);
    }

    private record Reading(String key, String topic, int times, long atMs) {}

    private static DefaultMQPushConsumer refusing(
            Rig rig, String group, String topic, int refusals, int delayLevel, List<Reading> log)
            throws Exception {
        DefaultMQPushConsumer made = rig.consumer(group);
        made.subscribe(topic, "*");
        made.registerMessageListener(
                (MessageListenerConcurrently)
                        (given, context) -> {
                            MessageExt one = given.get(0);
                            log.add(new Reading(one.getKeys(), one.getTopic(),
                                    one.getReconsumeTimes(), System.currentTimeMillis()));
                            context.setDelayLevelWhenNextConsume(delayLevel);
                            return one.getReconsumeTimes() < refusals
                                    ? ConsumeConcurrentlyStatus.RECONSUME_LATER
                                    : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
                        });
        return made;
    }

    private static Object retry(Rig rig) throws Exception {
        String topic = rig.topic();
        String group = rig.unique("g");
        List<Reading> log = new CopyOnWriteArrayList<>();
        refusing(rig, group, topic, 2, 1, log).start();
        rig.send(Rig.message(topic, "A", "again"));
        rig.await(Rig.PATIENCE_SECONDS, "a first reading", () -> !log.isEmpty());
        rig.midpoint();
        rig.await(60, () -> "three readings; " + log, () -> log.stream().anyMatch(r -> r.times() == 2));
        for (Reading each : log) {
            Check.equal("topic shown", topic, each.topic());
            Check.equal("key", "again", each.key());
        }
        if (!rig.faults()) {
            Check.equal("times", List.of(0, 1, 2), log.stream().map(Reading::times).toList());
            long waited = log.get(1).atMs() - log.get(0).atMs();
            Check.that(waited >= 950, "delay level 1 is a second, not " + waited + " ms");
        }
        return log.size() + " readings";
    }

    private static Object deadLetter(Rig rig) throws Exception {
        String topic = rig.topic();
        String group = rig.unique("g");
        List<Reading> log = new CopyOnWriteArrayList<>();
        DefaultMQPushConsumer consumer = refusing(rig, group, topic, 99, 1, log);
        consumer.setMaxReconsumeTimes(1);
        consumer.start();
        rig.send(Rig.message(topic, "A", "dead"));
        rig.await(Rig.PATIENCE_SECONDS, "a first reading", () -> !log.isEmpty());
        rig.midpoint();
        String dead = "%DLQ%" + group;
        awaitDead(rig, dead);
        MessageExt letter = readOne(rig, dead);
        Check.equal("key", "dead", letter.getKeys());
        Check.equal("body", "body of dead", new String(letter.getBody()));
        Check.equal("readings", List.of(0, 1),
                log.stream().map(Reading::times).distinct().toList());
        return "after " + log.size() + " readings, reconsumed " + letter.getReconsumeTimes();
    }

    private static void awaitDead(Rig rig, String dead) throws Exception {
        rig.await(60, dead, () -> {
            try {
                return rig.producer().maxOffset(
                        rig.queues(dead).get(0)) > 0;
            } catch (MQClientException e) {
                return false; // it does not exist yet
            }
        });
    }

    private static MessageExt readOne(Rig rig, String topic) throws Exception {
        Seen seen = rig.consume(rig.unique("g"), topic, "*");
        rig.await(Rig.PATIENCE_SECONDS, "a message of " + topic, () -> seen.size() > 0);
        return seen.message(seen.order().get(0));
    }

    private static Object sendBack(Rig rig) throws Exception {
        String topic = rig.topic();
        String group = rig.unique("g");
        List<Reading> log = new CopyOnWriteArrayList<>();
        refusing(rig, group, topic, 99, -1, log).start(); // -1: not again, to the dead letters
        rig.send(Rig.message(topic, "A", "dead"));
        rig.await(Rig.PATIENCE_SECONDS, "a first reading", () -> !log.isEmpty());
        rig.midpoint();
        awaitDead(rig, "%DLQ%" + group);
        Check.equal("key", "dead", readOne(rig, "%DLQ%" + group).getKeys());
        return log.size() + " reading";
    }

    private static Object orderlyDeadLetter(Rig rig) throws Exception {
        String topic = rig.topic(1);
        String group = rig.unique("g");
        AtomicInteger refused = new AtomicInteger();
        DefaultMQPushConsumer made = rig.consumer(group);
        made.setMaxReconsumeTimes(2);
        made.setSuspendCurrentQueueTimeMillis(200);
        made.subscribe(topic, "*");
        Seen seen = new Seen(made);
        made.registerMessageListener(
                (MessageListenerOrderly)
                        (given, context) -> {
                            if (given.get(0).getKeys().equals("bad")) {
                                refused.incrementAndGet();
                                return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT;
                            }
                            given.forEach(seen::take);
                            return ConsumeOrderlyStatus.SUCCESS;
                        });
        made.start();
        rig.send(Rig.message(topic, "A", "bad"));
        rig.send(Rig.message(topic, "A", "good"));
        rig.midpoint();
        rig.awaitSeen(60, seen, List.of("good"));
        awaitDead(rig, "%DLQ%" + group);
        Check.that(refused.get() >= 3, "refused three times, found " + refused.get());
        return refused.get() + " refusals";
    }

    private static Object levels(Rig rig) throws Exception {
        String topic = rig.topic();
        Seen seen = rig.consume(rig.unique("g"), topic, "*");
        rig.awaitReady(seen, topic, "A");
        int[] levels = {1, 2, 3};
        int[] seconds = {1, 5, 10};
        long[] storedMs = new long[levels.length];
        for (int i = 0; i < levels.length; i++) {
            Message message = Rig.message(topic, "A", "d" + levels[i]);
            message.setDelayTimeLevel(levels[i]);
            long before = System.currentTimeMillis();
            rig.send(message);
            storedMs[i] = before;
        }
        rig.midpoint();
        rig.awaitSeen(Rig.PATIENCE_SECONDS, seen, Seen.keys("d", 1, 4));
        StringBuilder told = new StringBuilder();
        for (int i = 0; i < levels.length; i++) {
            long lateMs = seen.atMs("d" + levels[i]) - storedMs[i] - seconds[i] * 1_000L;
            Check.that(lateMs >= 0, "level " + levels[i] + " came " + -lateMs + " ms early");
            if (!rig.faults()) {
                Check.that(lateMs < 3_000, "level " + levels[i] + " came " + lateMs + " ms late");
            }
            Check.equal("topic", topic, seen.message("d" + levels[i]).getTopic());
            told.append(lateMs).append(" ");
        }
        if (!rig.faults()) {
            Check.equal("repeated", 0, seen.repeated().size());
        }
        return told + "ms late";
    }

    private static Object levelAbove(Rig rig) throws Exception {
        String topic = rig.topic();
        Message message = Rig.message(topic, "A", "far");
        message.setDelayTimeLevel(99);
        rig.send(message);
        rig.midpoint();
        return "taken";
    }
}
