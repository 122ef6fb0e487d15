package interop;

import java.util.Collection;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Consumers that ask by themselves: lite pull by subscription and assignment, plain pull. */
final class PullCases {
    private PullCases() {}

    static void addTo(Catalogue all) {
        all.add("lite-pull-subscribe", PullCases::subscribe);
        all.add("lite-pull-assign-seek", PullCases::assign);
        all.add("lite-pull-commit", PullCases::commit);
        all.add("lite-pull-pause", PullCases::pause);
        all.add("pull-by-offset", PullCases::byOffset);
        all.add("pull-status", PullCases::status);
        all.add("pull-held", PullCases::held);
        all.add("pull-offset-store", PullCases::offsetStore);
    }

    private static Set<String> poll(Rig rig, DefaultLitePullConsumer consumer, int wanted)
            throws Exception {
        Set<String> keys = new HashSet<>();
        rig.await(40, () -> wanted + " messages, found " + keys.size(), () -> {
            for (MessageExt each : consumer.poll(200)) {
                keys.add(each.getKeys());
            }
            return keys.size() >= wanted;
        });
        Check.equal("messages", wanted, keys.size());
        return keys;
    }

    private static Object subscribe(Rig rig) throws Exception {
        String topic = rig.topic();
        DefaultLitePullConsumer consumer = rig.litePull(rig.unique("g"));
        consumer.subscribe(topic, "E");
        consumer.start();
        for (int i = 0; i < 60; i++) {
            rig.send(Rig.message(topic, i % 2 == 0 ? "E" : "O", "p" + i));
            if (i == 30) {
                rig.midpoint();
            }
        }
        poll(rig, consumer, 30);
        return "30 of 60";
    }

    private static Object assign(Rig rig) throws Exception {
        String topic = rig.topic();
        rig.sendAll(topic, "A", "p", 0, 40);
        DefaultLitePullConsumer consumer = rig.litePull(rig.unique("g"));
        consumer.start();
        Collection<MessageQueue> queues = rig.ask(() -> consumer.fetchMessageQueues(topic));
        consumer.assign(queues);
        for (MessageQueue each : queues) {
            consumer.seekToBegin(each);
        }
        poll(rig, consumer, 40);
        rig.midpoint();
        MessageQueue first = queues.iterator().next();
        rig.ask(() -> {
            consumer.seek(first, 5);
            return true;
        });
        poll(rig, consumer, 5);
        long offset = rig.ask(() -> consumer.offsetForTimestamp(first, 0L));
        Check.equal("offset for the beginning of time", 0L, offset);
        return "40, and 5 again";
    }

    private static Object commit(Rig rig) throws Exception {
        String topic = rig.topic(1);
        String group = rig.unique("g");
        rig.sendAll(topic, "A", "p", 0, 10);
        DefaultLitePullConsumer first = rig.litePull(group);
        first.setAutoCommit(false);
        first.subscribe(topic, "*");
        first.start();
        poll(rig, first, 10);
        rig.midpoint();
        MessageQueue queue = rig.ask(() -> first.fetchMessageQueues(topic)).iterator().next();
        rig.await(40, "a committed offset of 10", () -> {
            first.commitSync();
            Long committed = rig.ask(() -> first.committed(queue)); // in the client's memory
            return committed == 10 && OffsetCases.committed(rig, group, topic) == 10;
        });
        first.shutdown();
        rig.sendAll(topic, "A", "p", 10, 12);
        DefaultLitePullConsumer second = rig.litePull(group);
        second.subscribe(topic, "*");
        second.start();
        Check.equal("read", Set.of("p10", "p11"), poll(rig, second, 2));
        return "went on at 10";
    }

    private static Object pause(Rig rig) throws Exception {
        String topic = rig.topic(1);
        DefaultLitePullConsumer consumer = rig.litePull(rig.unique("g"));
        consumer.start();
        Collection<MessageQueue> queues = rig.ask(() -> consumer.fetchMessageQueues(topic));
        consumer.assign(queues);
        consumer.pause(queues);
        rig.sendAll(topic, "A", "first", 0, 1);
        // What was being pulled already comes; nothing is pulled after that.
        int before = consumer.poll(1_500).size();
        rig.sendAll(topic, "A", "p", 0, 5);
        Check.equal("messages while paused", 0, consumer.poll(1_500).size());
        rig.midpoint();
        consumer.resume(queues);
        poll(rig, consumer, 6 - before);
        return "5 after the pause";
    }

    @SuppressWarnings("deprecation")
    private static Object byOffset(Rig rig) throws Exception {
        String topic = rig.topic();
        for (int i = 0; i < 100; i++) {
            rig.send(Rig.message(topic, i % 2 == 0 ? "E" : "O", "p" + i));
        }
        DefaultMQPullConsumer consumer = rig.pull(rig.unique("g"));
        rig.midpoint();
        Set<String> keys = new HashSet<>();
        for (MessageQueue each : rig.ask(() -> consumer.fetchSubscribeMessageQueues(topic))) {
            long offset = rig.ask(() -> consumer.minOffset(each));
            long end = rig.ask(() -> consumer.maxOffset(each));
            while (offset < end) {
                long from = offset;
                PullResult result = rig.ask(() -> consumer.pull(each, "O", from, 7));
                if (result.getPullStatus() == PullStatus.FOUND) {
                    result.getMsgFoundList().forEach(m -> keys.add(m.getKeys()));
                }
                offset = result.getNextBeginOffset();
            }
        }
        Check.equal("of one tag", 50, keys.size());
        return "50 of 100";
    }

    @SuppressWarnings("deprecation")
    private static Object status(Rig rig) throws Exception {
        String topic = rig.topic(1);
        DefaultMQPullConsumer consumer = rig.pull(rig.unique("g"));
        MessageQueue queue = rig.ask(() -> consumer.fetchSubscribeMessageQueues(topic)).iterator().next();
        PullResult empty = rig.ask(() -> consumer.pull(queue, "*", 5, 7));
        Check.equal("beyond an empty queue", PullStatus.OFFSET_ILLEGAL, empty.getPullStatus());
        Check.equal("next", 0L, empty.getNextBeginOffset());
        rig.sendAll(topic, "A", "p", 0, 10);
        rig.midpoint();
        // A client that has lost its leader asks a follower, which corrects no offset.
        rig.await(0, "an illegal offset corrected to 10", () -> {
            PullResult beyond = rig.ask(() -> consumer.pull(queue, "*", 11, 7));
            return beyond.getPullStatus() == PullStatus.OFFSET_ILLEGAL
                    && beyond.getNextBeginOffset() == 10;
        });
        PullResult end = rig.ask(() -> consumer.pull(queue, "*", 10, 7));
        Check.equal("at the end", PullStatus.NO_NEW_MSG, end.getPullStatus());
        PullResult other = rig.ask(() -> consumer.pull(queue, "Nope", 0, 7));
        Check.equal("no such tag", PullStatus.NO_MATCHED_MSG, other.getPullStatus());
        Check.equal("next", 10L, other.getNextBeginOffset());
        PullResult found = rig.ask(() -> consumer.pull(queue, "*", 3, 4));
        Check.equal("found", 4, found.getMsgFoundList().size());
        Check.equal("bounds", "0 10", found.getMinOffset() + " " + found.getMaxOffset());
        return "found, none, no match, illegal";
    }

    @SuppressWarnings("deprecation")
    private static Object held(Rig rig) throws Exception {
        String topic = rig.topic(1);
        DefaultMQPullConsumer consumer = rig.pull(rig.unique("g"));
        MessageQueue queue = rig.ask(() -> consumer.fetchSubscribeMessageQueues(topic)).iterator().next();
        rig.send(Rig.message(topic, "A", "p0"));
        rig.midpoint();
        rig.send(Rig.message(topic, "A", "p1")); // where a leader has died: it has a successor now
        Thread sender =
                new Thread(
                        () -> {
                            try {
                                Thread.sleep(1_000); // the pull is held by then
                                rig.send(Rig.message(topic, "A", "wake"));
                            } catch (Exception e) {
                                throw new IllegalStateException(e);
                            }
                        });
        sender.start();
        long began = System.currentTimeMillis();
        PullResult result = rig.ask(() -> consumer.pullBlockIfNotFound(queue, "*", 2, 7));
        long tookMs = System.currentTimeMillis() - began;
        sender.join();
        Check.equal("status", PullStatus.FOUND, result.getPullStatus());
        Check.that(tookMs < 4_000, "woken by the message, not by a timeout: " + tookMs + " ms");
        return tookMs + " ms, of which the message came after 1000";
    }

    @SuppressWarnings("deprecation")
    private static Object offsetStore(Rig rig) throws Exception {
        String topic = rig.topic(1);
        String group = rig.unique("g");
        rig.sendAll(topic, "A", "p", 0, 10);
        DefaultMQPullConsumer consumer = rig.named(new DefaultMQPullConsumer(group));
        consumer.setRegisterTopics(Set.of(topic)); // so that it has queues whose offsets it keeps
        rig.closing(consumer::shutdown);
        consumer.start();
        MessageQueue queue = rig.ask(() -> consumer.fetchSubscribeMessageQueues(topic)).iterator().next();
        rig.midpoint();
        rig.await(60, "an offset of 3 in the broker", () -> {
            consumer.updateConsumeOffset(queue, 3);
            consumer.getDefaultMQPullConsumerImpl().persistConsumerOffset();
            return rig.ask(() -> consumer.fetchConsumeOffset(queue, true)) == 3;
        });
        return List.of(3);
    }
}
