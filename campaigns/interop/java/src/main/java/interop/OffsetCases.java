package interop;

import java.util.Map;
import org.apache.rocketmq.common.message.MessageQueue;

/** Progress of groups: told, reset while members are there and while none is, cloned. */
final class OffsetCases {
    private OffsetCases() {}

    static void addTo(Catalogue all) {
        all.add("progress", OffsetCases::progress);
        all.add("reset-online", 120, OffsetCases::resetOnline);
        all.add("reset-offline", 120, OffsetCases::resetOffline);
        all.add("clone-offsets", OffsetCases::cloneOffsets);
        all.add("skip-offsets", 120, OffsetCases::skip);
    }

    private static void awaitProgress(Rig rig, String group, String topic, long end) throws Exception {
        rig.await(40, "progress of " + end, () -> committed(rig, group, topic) == end);
    }

    static long committed(Rig rig, String group, String topic) throws Exception {
        long[] sum = new long[1];
        rig.ask(() -> rig.admin().examineConsumeStats(group, topic)).getOffsetTable()
                .forEach((queue, each) -> {
                    if (queue.getTopic().equals(topic)) {
                        sum[0] += each.getConsumerOffset();
                    }
                });
        return sum[0];
    }

    private static Object progress(Rig rig) throws Exception {
        String topic = rig.topic();
        String group = rig.unique("g");
        Seen seen = rig.consume(group, topic, "*");
        rig.sendAll(topic, "A", "m", 0, 20);
        rig.awaitSeen(Rig.PATIENCE_SECONDS, seen, Seen.keys("m", 0, 20));
        rig.midpoint();
        awaitProgress(rig, group, topic, 20);
        var stats = rig.ask(() -> rig.admin().examineConsumeStats(group, topic));
        Check.equal("behind", 0L, stats.computeTotalDiff());
        seen.consumer().shutdown();
        rig.sendAll(topic, "A", "m", 20, 25);
        var later = rig.ask(() -> rig.admin().examineConsumeStats(group, topic));
        Check.equal("behind", 5L, later.computeTotalDiff());
        return "20 read, then 5 behind";
    }

    private static Object resetOnline(Rig rig) throws Exception {
        String topic = rig.topic();
        String group = rig.unique("g");
        Seen seen = rig.consume(group, topic, "*");
        rig.sendAll(topic, "A", "m", 0, 20);
        rig.awaitSeen(Rig.PATIENCE_SECONDS, seen, Seen.keys("m", 0, 20));
        awaitProgress(rig, group, topic, 20);
        Map<MessageQueue, Long> reset =
                rig.ask(() -> rig.admin().resetOffsetByTimestamp(topic, group, 0, true));
        Check.equal("queues reset", 4, reset.size());
        long began = System.currentTimeMillis();
        rig.midpoint();
        rig.await(60, () -> "all again; " + seen.repeated().size() + " came",
                () -> seen.repeated().size() == 20);
        return "all again after " + (System.currentTimeMillis() - began) + " ms";
    }

    private static Object resetOffline(Rig rig) throws Exception {
        String topic = rig.topic();
        String group = rig.unique("g");
        Seen first = rig.consume(group, topic, "*");
        rig.sendAll(topic, "A", "m", 0, 20);
        rig.awaitSeen(Rig.PATIENCE_SECONDS, first, Seen.keys("m", 0, 20));
        awaitProgress(rig, group, topic, 20);
        first.consumer().shutdown();
        rig.await(Rig.PATIENCE_SECONDS, "no member", () -> {
            try {
                rig.admin().examineConsumerConnectionInfo(group);
                return false;
            } catch (org.apache.rocketmq.client.exception.MQClientException
                    | org.apache.rocketmq.client.exception.MQBrokerException e) {
                return e.toString().contains("206");
            }
        });
        resetWithoutMembers(rig, group, topic, 0);
        rig.midpoint();
        Seen second = rig.consume(group, topic, "*");
        rig.awaitSeen(60, second, Seen.keys("m", 0, 20));
        return "all again";
    }

    /** As mqadmin does it: brokers that can't reset a group without members are told offsets. */
    private static void resetWithoutMembers(Rig rig, String group, String topic, long time)
            throws Exception {
        try {
            rig.ask(() -> rig.admin().resetOffsetByTimestamp(topic, group, time, true));
        } catch (org.apache.rocketmq.client.exception.MQClientException e) {
            if (e.getResponseCode() != 206) {
                throw e;
            }
            rig.admin().resetOffsetByTimestampOld(group, topic, time, true);
        }
    }

    private static Object cloneOffsets(Rig rig) throws Exception {
        String topic = rig.topic();
        String group = rig.unique("g");
        String copy = rig.unique("copy");
        Seen first = rig.consume(group, topic, "*");
        rig.sendAll(topic, "A", "m", 0, 20);
        rig.awaitSeen(Rig.PATIENCE_SECONDS, first, Seen.keys("m", 0, 20));
        awaitProgress(rig, group, topic, 20);
        first.consumer().shutdown();
        rig.midpoint();
        AdminCases.createGroup(rig, copy);
        rig.ask(() -> {
            rig.admin().cloneGroupOffset(group, copy, topic, true);
            return true;
        });
        Seen second = rig.consume(copy, topic, "*");
        rig.sendAll(topic, "A", "m", 20, 25);
        rig.awaitSeen(Rig.PATIENCE_SECONDS, second, Seen.keys("m", 20, 25));
        Thread.sleep(500); // what must not come would have come by now
        Check.equal("read", 5, second.size());
        return "went on where the other was";
    }

    private static Object skip(Rig rig) throws Exception {
        String topic = rig.topic();
        String group = rig.unique("g");
        Seen first = rig.consume(group, topic, "*");
        rig.sendAll(topic, "A", "m", 0, 5);
        rig.awaitSeen(Rig.PATIENCE_SECONDS, first, Seen.keys("m", 0, 5));
        awaitProgress(rig, group, topic, 5);
        first.consumer().shutdown();
        rig.sendAll(topic, "A", "m", 5, 15);
        Thread.sleep(1_000); // the member's leave is known by then
        resetWithoutMembers(rig, group, topic, -1);
        rig.midpoint();
        Seen second = rig.consume(group, topic, "*");
        GroupCases.awaitShares(rig, topic, java.util.List.of(second), 4);
        Thread.sleep(rig.faults() ? 10_000 : 2_000); // resets are taken by pulls
        rig.sendAll(topic, "A", "m", 15, 20);
        rig.awaitSeen(60, second, Seen.keys("m", 15, 20));
        Check.equal("read", 5, second.size());
        return "10 skipped";
    }
}
