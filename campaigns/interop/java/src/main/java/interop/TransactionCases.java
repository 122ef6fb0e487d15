package interop;

import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.TransactionSendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Transactional messages: decided at once, decided when asked, never decided. */
final class TransactionCases {
    private TransactionCases() {}

    static void addTo(Catalogue all) {
        all.add("transaction-decided", TransactionCases::decided);
        all.add("transaction-checked", 120, TransactionCases::checked);
        all.add("transaction-fields", TransactionCases::plainFieldsSurvive);
    }

    /** Decides by a message's key: "c..." commit, "r..." rollback, "uc..." commit when asked, ... */
    private static final class Decisions implements TransactionListener {
        private final Map<String, Integer> checks = new ConcurrentHashMap<>();
        private final Map<String, String> topics = new ConcurrentHashMap<>();

        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
            return switch (message.getKeys().charAt(0)) {
                case 'c' -> LocalTransactionState.COMMIT_MESSAGE;
                case 'r' -> LocalTransactionState.ROLLBACK_MESSAGE;
                default -> LocalTransactionState.UNKNOW;
            };
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            checks.merge(message.getKeys(), 1, Integer::sum);
            topics.put(message.getKeys(), message.getTopic());
            return message.getKeys().startsWith("uc")
                    ? LocalTransactionState.COMMIT_MESSAGE
                    : LocalTransactionState.ROLLBACK_MESSAGE;
        }
    }

    private static TransactionMQProducer producer(Rig rig, Decisions decisions) throws Exception {
        TransactionMQProducer made = new TransactionMQProducer(rig.unique("p"));
        made.setTransactionListener(decisions);
        return rig.started(made);
    }

    private static void send(Rig rig, TransactionMQProducer producer, String topic, String key)
            throws Exception {
        Message[] message = {Rig.message(topic, "T", key)};
        rig.send(() -> {
            TransactionSendResult sent = producer.sendMessageInTransaction(message[0], null);
            if (sent.getSendStatus() != SendStatus.SEND_OK) {
                message[0] = Rig.message(topic, "T", key); // the client has rolled it back
            }
            return sent;
        });
    }

    private static Object decided(Rig rig) throws Exception {
        String topic = rig.topic();
        TransactionMQProducer producer = producer(rig, new Decisions());
        Seen seen = rig.consume(rig.unique("g"), topic, "T");
        for (int i = 0; i < 20; i++) {
            send(rig, producer, topic, "c" + i);
            send(rig, producer, topic, "r" + i);
            if (i == 9) {
                rig.midpoint();
            }
        }
        rig.awaitSeen(rig.faults() ? 90 : 20, seen, Seen.keys("c", 0, 20));
        Thread.sleep(500); // what must not come would have come by now
        Check.equal("messages that were rolled back and came", 0, seen.size() - 20);
        MessageExt read = seen.message("c3");
        Check.equal("body", "body of c3", new String(read.getBody()));
        Check.equal("transaction", read.getMsgId(), read.getTransactionId());
        Check.equal("repeated", Map.of(), seen.repeated());
        return "20 committed came once, 20 rolled back did not";
    }

    private static Object checked(Rig rig) throws Exception {
        String topic = rig.topic();
        Decisions decisions = new Decisions();
        TransactionMQProducer producer = producer(rig, decisions);
        Seen seen = rig.consume(rig.unique("g"), topic, "T");
        for (int i = 0; i < 5; i++) {
            send(rig, producer, topic, "uc" + i);
            send(rig, producer, topic, "ur" + i);
        }
        rig.midpoint();
        rig.awaitSeen(100, seen, Seen.keys("uc", 0, 5));
        rig.await(60, () -> "ten checked; " + decisions.checks, () -> decisions.checks.size() == 10);
        Thread.sleep(500); // what must not come would have come by now
        Check.equal("messages that were rolled back and came", 0, seen.size() - 5);
        Check.equal("repeated", Map.of(), seen.repeated());
        Check.equal("topic shown to the check", topic, decisions.topics.get("uc0"));
        return "checks " + decisions.checks.values();
    }

    private static Object plainFieldsSurvive(Rig rig) throws Exception {
        String topic = rig.topic();
        TransactionMQProducer producer = producer(rig, new Decisions());
        Seen seen = rig.consume(rig.unique("g"), topic, "*");
        Message message = Rig.message(topic, "标签", "c0");
        message.putUserProperty("name", "wert 中");
        message.setFlag(7);
        TransactionSendResult[] told = new TransactionSendResult[1];
        rig.send(() -> told[0] = producer.sendMessageInTransaction(message, null));
        rig.midpoint();
        Check.equal("local state", LocalTransactionState.COMMIT_MESSAGE,
                told[0].getLocalTransactionState());
        rig.awaitSeen(rig.faults() ? 90 : 20, seen, List.of("c0"));
        MessageExt read = seen.message("c0");
        Check.equal("property", "wert 中", read.getUserProperty("name"));
        Check.equal("flag", 7, read.getFlag());
        Check.equal("id", told[0].getMsgId(), read.getMsgId());
        return "flag, property, id";
    }
}
