package interop;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.exception.RemotingException;

/**
 * Loads that last, while whoever started this program does something to the brokers.
 *
 * <p>Arguments: "campaign"; which; name servers; seconds of load; seconds to settle. Its figures
 * are one JSON object behind "@@".
 */
final class Campaigns {
    private final Rig rig;
    private final int loadSeconds;
    private final int settleSeconds;
    private final PrintStream out;

    private Campaigns(Rig rig, int loadSeconds, int settleSeconds, PrintStream out) {
        this.rig = rig;
        this.loadSeconds = loadSeconds;
        this.settleSeconds = settleSeconds;
        this.out = out;
    }

    static boolean run(String[] arguments, PrintStream out) throws Exception {
        String run = Long.toString(System.currentTimeMillis() % 100_000_000L, 36);
        Rig.Place place = new Rig.Place(arguments[2], run, true);
        try (Rig rig = new Rig(place, arguments[1], () -> {})) {
            Campaigns campaigns =
                    new Campaigns(rig, Integer.parseInt(arguments[3]),
                            Integer.parseInt(arguments[4]), out);
            return switch (arguments[1]) {
                case "kills" -> campaigns.kills();
                case "members" -> campaigns.members();
                default -> throw new IllegalArgumentException("no campaign " + arguments[1]);
            };
        }
    }

    private void tell(Map<String, Object> figures) {
        StringBuilder json = new StringBuilder();
        figures.forEach((name, value) -> {
            json.append(json.length() == 0 ? "" : ",").append(Main.quoted(name)).append(":");
            json.append(value instanceof Number || value instanceof Boolean
                    ? value.toString() : Main.quoted(String.valueOf(value)));
        });
        out.println("@@{" + json + "}");
    }

    private void awaitWord(String told) throws Exception {
        out.println("@@{\"event\":\"" + told + "\"}");
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8)).readLine();
    }

    // A producer, a consumer and a transactional producer, all with default settings ---------------

    /** What one kind of producer was told. */
    private static final class Told {
        private final Set<String> acknowledged = ConcurrentHashMap.newKeySet();
        private final AtomicInteger failed = new AtomicInteger();
        private final AtomicLong lastMs = new AtomicLong(System.currentTimeMillis());
        private final AtomicLong longestGapMs = new AtomicLong();

        void acknowledge(String key) {
            acknowledged.add(key);
            long now = System.currentTimeMillis();
            longestGapMs.accumulateAndGet(now - lastMs.getAndSet(now), Math::max);
        }
    }

    private boolean kills() throws Exception {
        String topic = rig.topic();
        String decidedTopic = rig.topic();
        DefaultMQProducer producer = rig.started(new DefaultMQProducer(rig.unique("p")));
        Decisions decisions = new Decisions();
        TransactionMQProducer transactions = new TransactionMQProducer(rig.unique("p"));
        transactions.setTransactionListener(decisions);
        rig.started(transactions);
        Seen plain = rig.consume(rig.unique("g"), topic, "*");
        Seen decided = rig.consume(rig.unique("g"), decidedTopic, "*");
        AtomicBoolean goOn = new AtomicBoolean(true);
        Told sent = new Told();
        Told halves = new Told();
        List<Thread> threads = new ArrayList<>();
        for (int t = 0; t < 2; t++) {
            threads.add(loop(goOn, sent, "m" + t + "-",
                    message -> producer.send(message).getSendStatus() == SendStatus.SEND_OK, topic));
        }
        threads.add(loop(goOn, halves, "c",
                message -> transactions.sendMessageInTransaction(message, null).getSendStatus()
                        == SendStatus.SEND_OK, decidedTopic));
        awaitWord("loaded");
        Thread.sleep(loadSeconds * 1_000L);
        goOn.set(false);
        for (Thread each : threads) {
            each.join();
        }
        awaitWord("settling");
        return judge(topic, decidedTopic, sent, halves, plain, decided, decisions);
    }

    /** Sends until told to stop, each message once as far as the application goes. */
    private Thread loop(AtomicBoolean goOn, Told told, String prefix, Sending sending, String topic) {
        Thread thread =
                new Thread(
                        () -> {
                            for (int i = 0; goOn.get(); i++) {
                                // Every fifth half waits for a check, half of those to be rolled back.
                                String key = prefix.equals("c") ? kindOf(i) + i : prefix + i;
                                try {
                                    if (sending.send(Rig.message(topic, "A", key))) {
                                        told.acknowledge(key);
                                    }
                                    Thread.sleep(5);
                                } catch (MQClientException | MQBrokerException | RemotingException e) {
                                    told.failed.incrementAndGet();
                                } catch (InterruptedException e) {
                                    return;
                                }
                            }
                        });
        thread.start();
        return thread;
    }

    /** One attempt of an application. */
    @FunctionalInterface
    private interface Sending {
        boolean send(Message message)
                throws MQClientException, MQBrokerException, RemotingException, InterruptedException;
    }

    private static String kindOf(int number) {
        return switch (number % 10) {
            case 3 -> "r";
            case 5 -> "uc";
            case 7 -> "ur";
            default -> "c";
        };
    }

    private static final class Decisions implements TransactionListener {
        private final Set<String> checked = ConcurrentHashMap.newKeySet();

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
            String key = message.getKeys();
            checked.add(key);
            return key.startsWith("c") || key.startsWith("uc")
                    ? LocalTransactionState.COMMIT_MESSAGE
                    : LocalTransactionState.ROLLBACK_MESSAGE;
        }
    }

    private boolean judge(String topic, String decidedTopic, Told sent, Told halves, Seen plain,
            Seen decided, Decisions decisions) throws Exception {
        List<String> wanted = new ArrayList<>(sent.acknowledged);
        List<String> committed = halves.acknowledged.stream().filter(Campaigns::isCommitted).toList();
        long deadline = System.currentTimeMillis() + settleSeconds * 1_000L;
        while (System.currentTimeMillis() < deadline
                && !(plain.hasAll(wanted) && decided.hasAll(committed))) {
            Thread.sleep(200);
        }
        long lost = wanted.stream().filter(key -> !plain.has(key)).count();
        long undecided = committed.stream().filter(key -> !decided.has(key)).count();
        long wrong = decided.order().stream().filter(key -> !isCommitted(key)).count();
        Map<String, Object> figures = new java.util.LinkedHashMap<>();
        figures.put("acknowledged", wanted.size());
        figures.put("failed_sends", sent.failed.get());
        figures.put("longest_gap_ms", sent.longestGapMs.get());
        figures.put("lost", lost);
        figures.put("stored_twice", storedTwice(topic));
        figures.put("read_again", plain.repeated().size());
        figures.put("halves_acknowledged", halves.acknowledged.size());
        figures.put("failed_halves", halves.failed.get());
        figures.put("halves_longest_gap_ms", halves.longestGapMs.get());
        figures.put("committed", committed.size());
        figures.put("committed_lost", undecided);
        figures.put("rolled_back_but_read", wrong);
        figures.put("committed_stored_twice", storedTwice(decidedTopic));
        figures.put("checked", decisions.checked.size());
        boolean good = lost == 0 && undecided == 0 && wrong == 0
                && figures.get("stored_twice").equals(0)
                && figures.get("committed_stored_twice").equals(0);
        figures.put("good", good);
        tell(figures);
        return good;
    }

    private static boolean isCommitted(String key) {
        return key.startsWith("c") || key.startsWith("uc");
    }

    /** Messages that stand at more than one place of the topic's queues. */
    @SuppressWarnings("deprecation")
    private int storedTwice(String topic) throws Exception {
        var reader = rig.pull(rig.unique("reader"));
        Map<String, Integer> counts = new HashMap<>();
        for (MessageQueue queue : rig.ask(() -> reader.fetchSubscribeMessageQueues(topic))) {
            long offset = rig.ask(() -> reader.minOffset(queue));
            long end = rig.ask(() -> reader.maxOffset(queue));
            while (offset < end) {
                long from = offset;
                var result = rig.ask(() -> reader.pull(queue, "*", from, 32));
                if (result.getMsgFoundList() != null) {
                    result.getMsgFoundList().forEach(m -> counts.merge(m.getKeys(), 1, Integer::sum));
                }
                offset = result.getNextBeginOffset();
            }
        }
        return (int) counts.values().stream().filter(times -> times > 1).count();
    }

    // Members that come and go -------------------------------------------------------------------

    private static final int MEMBERS = 10;
    private static final long CHANGE_MS = 2_000;

    private boolean members() throws Exception {
        String topic = rig.topic(16);
        String group = rig.unique("g");
        Told sent = new Told();
        AtomicBoolean goOn = new AtomicBoolean(true);
        List<Thread> threads = new ArrayList<>();
        for (int i = 0; i < MEMBERS; i++) {
            DefaultMQProducer producer = rig.started(new DefaultMQProducer(rig.unique("p")));
            threads.add(loop(goOn, sent, "p" + i + "-",
                    message -> producer.send(message).getSendStatus() == SendStatus.SEND_OK, topic));
        }
        List<Seen> all = new ArrayList<>();
        List<Seen> there = new ArrayList<>();
        for (int i = 0; i < MEMBERS; i++) {
            Seen member = rig.consume(group, topic, "*");
            all.add(member);
            there.add(member);
        }
        int changes = 0;
        long end = System.currentTimeMillis() + loadSeconds * 1_000L;
        while (System.currentTimeMillis() < end) {
            Thread.sleep(CHANGE_MS);
            if (changes % 2 == 0) {
                there.remove(changes % there.size()).consumer().shutdown();
            } else {
                Seen member = rig.consume(group, topic, "*");
                all.add(member);
                there.add(member);
            }
            changes++;
        }
        long lastChange = System.currentTimeMillis();
        long ownedAfterMs = awaitOwners(topic, there, lastChange);
        goOn.set(false);
        for (Thread each : threads) {
            each.join();
        }
        return judgeMembers(topic, sent, all, changes, ownedAfterMs);
    }

    /** How long after the last change every queue has one owner; more than a minute is -1. */
    private long awaitOwners(String topic, List<Seen> there, long since) throws Exception {
        while (System.currentTimeMillis() - since < 60_000) {
            List<MessageQueue> owned = new ArrayList<>();
            there.forEach(each -> owned.addAll(GroupCases.queuesOf(each, topic)));
            if (owned.size() == 16 && Set.copyOf(owned).size() == 16) {
                return System.currentTimeMillis() - since;
            }
            Thread.sleep(20);
        }
        return -1;
    }

    private boolean judgeMembers(String topic, Told sent, List<Seen> all, int changes,
            long ownedAfterMs) throws Exception {
        long deadline = System.currentTimeMillis() + settleSeconds * 1_000L;
        Set<String> left = ConcurrentHashMap.newKeySet();
        left.addAll(sent.acknowledged);
        while (!left.isEmpty() && System.currentTimeMillis() < deadline) {
            all.forEach(each -> left.removeIf(each::has));
            Thread.sleep(200);
        }
        int readings = all.stream().mapToInt(each -> each.order().size()).sum();
        Set<String> distinct = new java.util.HashSet<>();
        all.forEach(each -> distinct.addAll(each.order()));
        Map<String, Object> figures = new java.util.LinkedHashMap<>();
        figures.put("acknowledged", sent.acknowledged.size());
        figures.put("failed_sends", sent.failed.get());
        figures.put("lost", left.size());
        figures.put("stored_twice", storedTwice(topic));
        figures.put("redelivered", readings - distinct.size());
        figures.put("changes", changes);
        figures.put("owned_after_last_change_ms", ownedAfterMs);
        boolean good = left.isEmpty() && ownedAfterMs >= 0 && ownedAfterMs <= 2_000
                && figures.get("stored_twice").equals(0);
        figures.put("good", good);
        tell(figures);
        return good;
    }
}
