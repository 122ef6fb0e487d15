package interop;

import java.util.ArrayDeque;
import java.util.Deque;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.exception.RemotingException;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * What a case works with: clients that end with it, names that no other case has, waiting with a
 * deadline.
 *
 * <p>Clients have their default settings, but for their names.
 */
final class Rig implements AutoCloseable {
    /** Where cases run; with faults they get more time, and repeat what a dead leader refused. */
    record Place(String nameServers, String run, boolean faults) {
        int deadlineSeconds(Case each) {
            return each.deadlineSeconds() + (faults ? 90 : 0);
        }
    }

    /** The middle of a case. */
    @FunctionalInterface
    interface Middle {
        void reached() throws InterruptedException;
    }

    /**
     * For what must come, however long it takes. Clients rebalance every 20 s and send heartbeats
     * every 30, and on a busy machine one of either may fail. A client's first rebalance also
     * changes its subscription's version and falls together with its first heartbeat: often only
     * the next one tells the broker, which until then refuses pulls with an expression (25), as
     * RocketMQ does.
     */
    static final int PATIENCE_SECONDS = 45;

    /** Whoever started this program, and does what a case wants done to the brokers. */
    @FunctionalInterface
    interface Operator {
        String carryOut(String what);
    }

    private static final AtomicInteger NUMBERS = new AtomicInteger();

    private final Place place;
    private final String name;
    private final Middle middle;
    private final Operator operator;
    private final Deque<Runnable> toClose = new ArrayDeque<>();
    private DefaultMQAdminExt admin;
    private DefaultMQProducer producer;

    /** Nobody does anything to the brokers. */
    Rig(Place place, String name, Middle middle) {
        this(place, name, middle, what -> {
            throw new AssertionError("nobody is there for: " + what);
        });
    }

    Rig(Place place, String name, Middle middle, Operator operator) {
        this.place = place;
        this.name = name;
        this.middle = middle;
        this.operator = operator;
    }

    /** The middle of the case: here the leader dies where one is to die. */
    void midpoint() throws InterruptedException {
        middle.reached();
    }

    /** Done when it returns; returns what the operator answers. */
    String order(String what) {
        String answer = operator.carryOut(what);
        Check.that(!answer.startsWith("failed"), what + ": " + answer);
        return answer;
    }

    boolean faults() {
        return place.faults();
    }

    String nameServers() {
        return place.nameServers();
    }

    /** A name of this case and run alone. */
    String unique(String what) {
        return what + "_" + name + "_" + place.run() + NUMBERS.incrementAndGet();
    }

    /** A new topic of four queues that clients can find. */
    String topic() throws Exception {
        return topic(4);
    }

    String topic(int queues) throws Exception {
        String topic = unique("t");
        // Not what is tested: on a busy machine it may take more than the client's one attempt.
        await(PATIENCE_SECONDS, "a route of " + topic, () -> {
            try {
                VersionCases.createTopic(producer(), topic, queues);
            } catch (MQClientException e) {
                return false;
            }
            return queuesOf(topic) == queues;
        });
        return topic;
    }

    /** Those that a producer may choose from; where a leader has died, those of its successor. */
    List<MessageQueue> queues(String topic) throws Exception {
        return ask(() -> producer().fetchPublishMessageQueues(topic));
    }

    private int queuesOf(String topic) {
        try {
            return producer().fetchPublishMessageQueues(topic).size();
        } catch (MQClientException e) {
            return 0;
        }
    }

    // Clients ------------------------------------------------------------------------------------

    <C extends ClientConfig> C named(C client) {
        client.setNamesrvAddr(place.nameServers());
        client.setInstanceName(unique("i"));
        return client;
    }

    /** Ends with the case; the last that was given ends first. */
    void closing(Runnable close) {
        toClose.push(close);
    }

    DefaultMQProducer producer() throws MQClientException {
        if (producer == null) {
            producer = started(new DefaultMQProducer(unique("p")));
        }
        return producer;
    }

    <P extends DefaultMQProducer> P started(P made) throws MQClientException {
        named(made);
        made.start();
        closing(made::shutdown);
        return made;
    }

    DefaultMQAdminExt admin() throws MQClientException {
        if (admin == null) {
            admin = named(new DefaultMQAdminExt(10_000L));
            admin.start();
            closing(admin::shutdown);
        }
        return admin;
    }

    /** Not started. */
    DefaultMQPushConsumer consumer(String group) {
        DefaultMQPushConsumer made = named(new DefaultMQPushConsumer(group));
        made.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        closing(made::shutdown);
        return made;
    }

    /** A member of `group` that takes everything. */
    Seen consume(String group, String topic, String tags) throws MQClientException {
        DefaultMQPushConsumer made = consumer(group);
        made.subscribe(topic, tags);
        Seen seen = new Seen(made);
        made.registerMessageListener(seen.concurrently());
        made.start();
        return seen;
    }

    DefaultLitePullConsumer litePull(String group) {
        DefaultLitePullConsumer made = named(new DefaultLitePullConsumer(group));
        made.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        closing(made::shutdown);
        return made;
    }

    @SuppressWarnings("deprecation")
    DefaultMQPullConsumer pull(String group) throws MQClientException {
        DefaultMQPullConsumer made = named(new DefaultMQPullConsumer(group));
        made.start();
        closing(made::shutdown);
        return made;
    }

    // Sending ------------------------------------------------------------------------------------

    static Message message(String topic, String tags, String key) {
        return new Message(topic, tags, key, ("body of " + key).getBytes());
    }

    SendResult send(Message message) throws Exception {
        return send(() -> producer().send(message));
    }

    /**
     * A send that must succeed. While leaders die the same message is sent again, as an application
     * would that wants more than its master to have it; a message has its UNIQ_KEY from its first
     * attempt on.
     */
    SendResult send(Callable<SendResult> attempt) throws Exception {
        long deadline = System.currentTimeMillis() + 60_000;
        while (true) {
            try {
                SendResult result = attempt.call();
                if (place.faults() && System.currentTimeMillis() < deadline
                        && result.getSendStatus() != SendStatus.SEND_OK) {
                    Thread.sleep(200); // stored, where a slave or a disk is slow
                    continue;
                }
                Check.equal("send status", SendStatus.SEND_OK, result.getSendStatus());
                return result;
            } catch (MQClientException | MQBrokerException | RemotingException e) {
                if (!place.faults() || System.currentTimeMillis() > deadline) {
                    throw e;
                }
                Thread.sleep(200);
            }
        }
    }

    void sendAll(String topic, String tags, String prefix, int from, int to) throws Exception {
        for (int i = from; i < to; i++) {
            send(message(topic, tags, prefix + i));
        }
    }

    /** An admin or query call that must succeed, likewise. */
    <T> T ask(Callable<T> call) throws Exception {
        return insist(call);
    }

    private <T> T insist(Callable<T> call) throws Exception {
        long deadline = System.currentTimeMillis() + 60_000;
        while (true) {
            try {
                return call.call();
            } catch (MQClientException | MQBrokerException | RemotingException e) {
                if (!place.faults() || System.currentTimeMillis() > deadline) {
                    throw e;
                }
                Thread.sleep(200);
            }
        }
    }

    // Waiting ------------------------------------------------------------------------------------

    /** Poll until it holds; `what` should have happened by then. */
    void await(int seconds, String what, Callable<Boolean> condition) throws Exception {
        await(seconds, () -> what, condition);
    }

    void await(int seconds, Callable<String> what, Callable<Boolean> condition) throws Exception {
        int allowed = seconds + (place.faults() ? 60 : 0);
        long deadline = System.nanoTime() + allowed * 1_000_000_000L;
        while (!condition.call()) {
            if (System.nanoTime() > deadline) {
                throw new AssertionError("not within " + allowed + " s: " + what.call());
            }
            Thread.sleep(50);
        }
    }

    /** Every one of `keys` was seen. */
    void awaitSeen(int seconds, Seen seen, List<String> keys) throws Exception {
        await(seconds, () -> "all of " + keys.size() + " messages; missing " + seen.missing(keys),
                () -> seen.hasAll(keys));
    }

    /** A consumer has its queues: from here on what comes late is not late because of that. */
    void awaitReady(Seen seen, String topic, String tag) throws Exception {
        send(message(topic, tag, "ready"));
        awaitSeen(PATIENCE_SECONDS, seen, List.of("ready"));
    }

    @Override
    public void close() {
        while (!toClose.isEmpty()) {
            toClose.pop().run();
        }
    }
}
