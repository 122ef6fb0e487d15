package interop;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragelyByCircle;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueConsistentHash;
import org.apache.rocketmq.common.message.MessageQueue;

/** Members that join, leave and share queues. */
final class GroupCases {
    private GroupCases() {}

    static void addTo(Catalogue all) {
        all.add("rebalance-join", GroupCases::join);
        all.add("rebalance-leave", GroupCases::leave);
        all.add("rebalance-more-members-than-queues", GroupCases::crowd);
        all.add("rebalance-by-circle", GroupCases::byCircle);
        all.add("rebalance-consistent-hash", GroupCases::byHash);
        all.add("rebalance-nothing-lost", GroupCases::nothingLost);
    }

    static Set<MessageQueue> queuesOf(Seen member, String topic) {
        Set<MessageQueue> queues = new HashSet<>();
        member.consumer().getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable()
                .forEach((queue, ignored) -> {
                    if (queue.getTopic().equals(topic)) {
                        queues.add(queue);
                    }
                });
        return queues;
    }

    /** Every queue has one owner, and each member `share` of them. */
    static void awaitShares(Rig rig, String topic, List<Seen> members, int... shares)
            throws Exception {
        rig.await(40, () -> "shares, found " + members.stream().map(m -> queuesOf(m, topic)).toList(),
                () -> {
                    Set<MessageQueue> all = new HashSet<>();
                    List<Integer> sizes = new ArrayList<>();
                    for (Seen each : members) {
                        Set<MessageQueue> own = queuesOf(each, topic);
                        sizes.add(own.size());
                        all.addAll(own);
                    }
                    sizes.sort(null);
                    List<Integer> wanted = new ArrayList<>();
                    for (int share : shares) {
                        wanted.add(share);
                    }
                    int sum = wanted.stream().mapToInt(Integer::intValue).sum();
                    return sizes.equals(wanted) && all.size() == sum;
                });
    }

    private static Object join(Rig rig) throws Exception {
        String topic = rig.topic();
        String group = rig.unique("g");
        List<Seen> members = new ArrayList<>();
        members.add(rig.consume(group, topic, "*"));
        awaitShares(rig, topic, members, 4);
        rig.midpoint();
        long began = System.currentTimeMillis();
        members.add(rig.consume(group, topic, "*"));
        awaitShares(rig, topic, members, 2, 2);
        long tookMs = System.currentTimeMillis() - began;
        members.add(rig.consume(group, topic, "*"));
        awaitShares(rig, topic, members, 1, 1, 2);
        if (!rig.faults()) {
            Check.that(tookMs < 5_000, "shared on notice, not after " + tookMs + " ms");
        }
        return "second member had its share in " + tookMs + " ms";
    }

    private static Object leave(Rig rig) throws Exception {
        String topic = rig.topic();
        String group = rig.unique("g");
        List<Seen> members = new ArrayList<>();
        members.add(rig.consume(group, topic, "*"));
        members.add(rig.consume(group, topic, "*"));
        awaitShares(rig, topic, members, 2, 2);
        rig.midpoint();
        long began = System.currentTimeMillis();
        members.remove(0).consumer().shutdown();
        awaitShares(rig, topic, members, 4);
        long tookMs = System.currentTimeMillis() - began;
        if (!rig.faults()) {
            Check.that(tookMs < 10_000, "taken over on notice, not after " + tookMs + " ms");
        }
        return "taken over in " + tookMs + " ms";
    }

    private static Object crowd(Rig rig) throws Exception {
        String topic = rig.topic(2);
        String group = rig.unique("g");
        List<Seen> members = new ArrayList<>();
        for (int i = 0; i < 3; i++) {
            members.add(rig.consume(group, topic, "*"));
        }
        awaitShares(rig, topic, members, 0, 1, 1);
        rig.midpoint();
        rig.sendAll(topic, "A", "m", 0, 20);
        rig.await(Rig.PATIENCE_SECONDS, "20 messages", () -> members.stream().mapToInt(Seen::size).sum() >= 20);
        return "one of three has none";
    }

    private static Object byCircle(Rig rig) throws Exception {
        String topic = rig.topic();
        String group = rig.unique("g");
        List<Seen> members = new ArrayList<>();
        for (int i = 0; i < 2; i++) {
            DefaultMQPushConsumer made = rig.consumer(group);
            made.setAllocateMessageQueueStrategy(new AllocateMessageQueueAveragelyByCircle());
            made.subscribe(topic, "*");
            Seen seen = new Seen(made);
            made.registerMessageListener(seen.concurrently());
            made.start();
            members.add(seen);
        }
        rig.midpoint();
        awaitShares(rig, topic, members, 2, 2);
        Set<Integer> ids = new HashSet<>();
        queuesOf(members.get(0), topic).forEach(each -> ids.add(each.getQueueId() % 2));
        Check.equal("kinds of queue of one member", 1, ids.size());
        return "even and odd";
    }

    private static Object byHash(Rig rig) throws Exception {
        String topic = rig.topic(16);
        String group = rig.unique("g");
        List<Seen> members = new ArrayList<>();
        for (int i = 0; i < 2; i++) {
            DefaultMQPushConsumer made = rig.consumer(group);
            made.setAllocateMessageQueueStrategy(new AllocateMessageQueueConsistentHash());
            made.subscribe(topic, "*");
            Seen seen = new Seen(made);
            made.registerMessageListener(seen.concurrently());
            made.start();
            members.add(seen);
        }
        rig.midpoint();
        rig.await(40, "16 queues of two owners", () -> {
            Set<MessageQueue> one = queuesOf(members.get(0), topic);
            Set<MessageQueue> two = queuesOf(members.get(1), topic);
            Set<MessageQueue> all = new HashSet<>(one);
            all.addAll(two);
            return all.size() == 16 && one.size() + two.size() == 16;
        });
        return queuesOf(members.get(0), topic).size() + " of 16";
    }

    private static Object nothingLost(Rig rig) throws Exception {
        String topic = rig.topic();
        String group = rig.unique("g");
        List<Seen> all = new ArrayList<>();
        List<Seen> there = new ArrayList<>();
        for (int round = 0; round < 6; round++) {
            Seen member = rig.consume(group, topic, "*");
            all.add(member);
            there.add(member);
            if (there.size() > 2) {
                there.remove(0).consumer().shutdown();
            }
            rig.sendAll(topic, "A", "m", round * 20, round * 20 + 20);
            if (round == 2) {
                rig.midpoint();
            }
        }
        List<String> keys = Seen.keys("m", 0, 120);
        rig.await(60, () -> {
            List<String> left = new ArrayList<>(keys);
            all.forEach(each -> left.removeAll(each.order()));
            return "all of 120; missing " + left;
        }, () -> {
            Set<String> found = new HashSet<>();
            all.forEach(each -> found.addAll(each.order()));
            return found.containsAll(keys);
        });
        int readings = all.stream().mapToInt(each -> each.order().size()).sum();
        return "120 messages, " + readings + " readings, six members";
    }
}
