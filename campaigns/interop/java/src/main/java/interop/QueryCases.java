package interop;

import java.util.List;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Finding messages again: by key, by either id, by time. */
final class QueryCases {
    private QueryCases() {}

    static void addTo(Catalogue all) {
        all.add("query-by-key", QueryCases::byKey);
        all.add("query-by-one-of-many-keys", QueryCases::byOneOfMany);
        all.add("query-by-key-time-range", QueryCases::byKeyAndTime);
        all.add("query-by-unknown-key", QueryCases::byUnknownKey);
        all.add("query-by-unique-id", QueryCases::byUniqueId);
        all.add("query-by-offset-id", QueryCases::byOffsetId);
        all.add("query-by-offset-id-unknown", QueryCases::byOffsetIdUnknown);
        all.add("query-offsets", QueryCases::offsets);
        all.add("query-by-time", QueryCases::byTime);
        all.add("query-earliest-time", QueryCases::earliest);
    }

    private static final long FAR_MS = 1L << 45;

    private static List<MessageExt> query(Rig rig, String topic, String key) throws Exception {
        QueryResult[] found = new QueryResult[1];
        rig.await(Rig.PATIENCE_SECONDS, "a message with the key " + key, () -> {
            try {
                found[0] = rig.admin().queryMessage(topic, key, 32, 0, FAR_MS);
                return !found[0].getMessageList().isEmpty();
            } catch (org.apache.rocketmq.client.exception.MQClientException e) {
                return false; // the index is made behind the send
            }
        });
        return found[0].getMessageList();
    }

    private static Object byKey(Rig rig) throws Exception {
        String topic = rig.topic();
        for (int i = 0; i < 3; i++) {
            rig.send(new Message(topic, "A", "same", ("v" + i).getBytes()));
        }
        rig.send(Rig.message(topic, "A", "other"));
        rig.midpoint();
        rig.await(Rig.PATIENCE_SECONDS, "three messages", () -> query(rig, topic, "same").size() == 3);
        Check.equal("of the other key", 1, query(rig, topic, "other").size());
        return "3 and 1";
    }

    private static Object byOneOfMany(Rig rig) throws Exception {
        String topic = rig.topic();
        Message message = Rig.message(topic, "A", "x");
        message.setKeys(List.of("one", "two", "three"));
        SendResult sent = rig.send(message);
        rig.midpoint();
        for (String key : List.of("one", "two", "three")) {
            Check.equal("id", sent.getMsgId(), query(rig, topic, key).get(0).getMsgId());
        }
        return "by each of three keys";
    }

    private static Object byKeyAndTime(Rig rig) throws Exception {
        String topic = rig.topic();
        rig.send(Rig.message(topic, "A", "timed"));
        MessageExt found = query(rig, topic, "timed").get(0);
        rig.midpoint();
        long at = found.getStoreTimestamp();
        QueryResult within =
                rig.ask(() -> rig.admin().queryMessage(topic, "timed", 32, at - 60_000, at + 60_000));
        Check.equal("within", 1, within.getMessageList().size());
        return Check.fails("", () -> {
            QueryResult none = rig.admin().queryMessage(topic, "timed", 32, 1, at - 600_000);
            Check.equal("before", 0, none.getMessageList().size());
            throw new IllegalStateException("an empty answer");
        });
    }

    private static Object byUnknownKey(Rig rig) throws Exception {
        String topic = rig.topic();
        rig.send(Rig.message(topic, "A", "known"));
        query(rig, topic, "known");
        return Check.fails("", () -> {
            QueryResult none = rig.admin().queryMessage(topic, "unknown", 32, 0, FAR_MS);
            Check.equal("found", 0, none.getMessageList().size());
            throw new IllegalStateException("an empty answer");
        });
    }

    private static Object byUniqueId(Rig rig) throws Exception {
        String topic = rig.topic();
        SendResult sent = rig.send(Rig.message(topic, "A", "u"));
        rig.send(Rig.message(topic, "A", "v"));
        rig.midpoint();
        MessageExt[] found = new MessageExt[1];
        rig.await(Rig.PATIENCE_SECONDS, "the message", () -> {
            try {
                found[0] = rig.admin().viewMessage(topic, sent.getMsgId());
                return found[0] != null;
            } catch (org.apache.rocketmq.client.exception.MQClientException e) {
                return false; // the index is made behind the send
            }
        });
        Check.equal("body", "body of u", new String(found[0].getBody()));
        Check.equal("id", sent.getMsgId(), found[0].getMsgId());
        return found[0].getMsgId();
    }

    private static Object byOffsetId(Rig rig) throws Exception {
        String topic = rig.topic();
        SendResult sent = rig.send(Rig.message(topic, "A", "o"));
        MessageExt found = rig.ask(() -> rig.admin().viewMessage(topic, sent.getOffsetMsgId()));
        Check.equal("body", "body of o", new String(found.getBody()));
        Check.equal("queue offset", sent.getQueueOffset(), found.getQueueOffset());
        return sent.getOffsetMsgId();
    }

    private static Object byOffsetIdUnknown(Rig rig) throws Exception {
        String topic = rig.topic();
        SendResult sent = rig.send(Rig.message(topic, "A", "o"));
        String id = sent.getOffsetMsgId();
        String far = id.substring(0, 16) + "00000FFFFFFFFF00";
        return Check.fails("", () -> rig.admin().viewMessage(topic, far));
    }

    private static Object offsets(Rig rig) throws Exception {
        String topic = rig.topic(1);
        MessageQueue queue = rig.queues(topic).get(0);
        Check.equal("end of nothing", 0L, rig.ask(() -> rig.producer().maxOffset(queue)));
        rig.sendAll(topic, "A", "m", 0, 7);
        rig.midpoint();
        // RocketMQ fills its queues behind the sends.
        rig.await(5, "an end of 7", () -> rig.ask(() -> rig.producer().maxOffset(queue)) == 7);
        Check.equal("beginning", 0L, rig.ask(() -> rig.producer().minOffset(queue)));
        MessageQueue unknown = new MessageQueue(rig.unique("none"), queue.getBrokerName(), 0);
        Check.equal("end of an unknown topic", 0L, rig.ask(() -> rig.producer().maxOffset(unknown)));
        return "0 to 7";
    }

    private static Object byTime(Rig rig) throws Exception {
        String topic = rig.topic(1);
        MessageQueue queue = rig.queues(topic).get(0);
        rig.sendAll(topic, "A", "m", 0, 3);
        Thread.sleep(1_100);
        long middle = System.currentTimeMillis() - 500;
        rig.sendAll(topic, "A", "m", 3, 6);
        rig.midpoint();
        rig.await(5, "an end of 6", () -> rig.ask(() -> rig.producer().maxOffset(queue)) == 6);
        Check.equal("first", 0L, rig.ask(() -> rig.producer().searchOffset(queue, 1)));
        Check.equal("middle", 3L, rig.ask(() -> rig.producer().searchOffset(queue, middle)));
        long later = System.currentTimeMillis() + 60_000;
        Check.equal("after the last", 6L, rig.ask(() -> rig.producer().searchOffset(queue, later)));
        return "0, 3, 6";
    }

    private static Object earliest(Rig rig) throws Exception {
        String topic = rig.topic(1);
        MessageQueue queue = rig.queues(topic).get(0);
        long before = System.currentTimeMillis();
        rig.sendAll(topic, "A", "m", 0, 2);
        rig.midpoint();
        long time = rig.ask(() -> rig.producer().earliestMsgStoreTime(queue));
        Check.that(time >= before - 1_000 && time <= System.currentTimeMillis() + 1_000, "time " + time);
        return time - before + " ms after it was sent";
    }
}
