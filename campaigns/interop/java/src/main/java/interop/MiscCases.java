package interop;

import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.RequestCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.message.Message;

/** Request and reply, traces, namespaces. */
final class MiscCases {
    private MiscCases() {}

    static void addTo(Catalogue all) {
        all.add("request-reply", MiscCases::requestReply);
        all.add("request-timeout", MiscCases::requestTimeout);
        all.add("trace-of-sends", MiscCases::trace);
        all.add("trace-of-consumption", MiscCases::traceConsumed);
        all.add("namespace", MiscCases::namespace);
        all.add("namespace-retry", MiscCases::namespaceRetry);
    }

    private static Object requestReply(Rig rig) throws Exception {
        String topic = rig.topic();
        DefaultMQPushConsumer server = rig.consumer(rig.unique("g"));
        server.subscribe(topic, "*");
        server.registerMessageListener(
                (MessageListenerConcurrently)
                        (given, context) -> {
                            try {
                                byte[] body = ("re: " + new String(given.get(0).getBody())).getBytes();
                                Message reply = MessageUtil.createReplyMessage(given.get(0), body);
                                rig.producer().send(reply);
                                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
                            } catch (Exception e) {
                                return ConsumeConcurrentlyStatus.RECONSUME_LATER;
                            }
                        });
        server.start();
        rig.producer();
        DefaultMQProducer asking = rig.started(new DefaultMQProducer(rig.unique("p")));
        Message first = ask(asking, Rig.message(topic, "A", "q0"), 20_000);
        Check.equal("reply", "re: body of q0", new String(first.getBody()));
        rig.midpoint();
        long deadline = System.currentTimeMillis() + 60_000;
        while (true) {
            try {
                Message later = ask(asking, Rig.message(topic, "A", "q1"), 10_000);
                Check.equal("reply", "re: body of q1", new String(later.getBody()));
                return "two replies";
            } catch (org.apache.rocketmq.client.exception.MQClientException
                    | org.apache.rocketmq.client.exception.MQBrokerException
                    | java.util.concurrent.ExecutionException
                    | org.apache.rocketmq.remoting.exception.RemotingException e) {
                if (!rig.faults() || System.currentTimeMillis() > deadline) {
                    throw e;
                }
            }
        }
    }

    private static Object requestTimeout(Rig rig) throws Exception {
        String topic = rig.topic();
        DefaultMQProducer asking = rig.started(new DefaultMQProducer(rig.unique("p")));
        return Check.fails("timeout", () -> ask(asking, Rig.message(topic, "A", "nobody"), 2_000));
    }

    /**
     * By a callback: the call of 5.3.3 that waits gives up as soon as the request is stored, unless
     * its reply is quicker than that. The callback is called then too, with nothing.
     */
    private static Message ask(DefaultMQProducer producer, Message request, long timeoutMs)
            throws Exception {
        CompletableFuture<Message> reply = new CompletableFuture<>();
        producer.request(
                request,
                new RequestCallback() {
                    @Override
                    public void onSuccess(Message message) {
                        if (message != null) {
                            reply.complete(message);
                        }
                    }

                    @Override
                    public void onException(Throwable e) {
                        reply.completeExceptionally(e);
                    }
                },
                timeoutMs);
        return reply.get(timeoutMs + 10_000, TimeUnit.MILLISECONDS);
    }

    private static Object trace(Rig rig) throws Exception {
        String topic = rig.topic();
        Seen traces = traceConsumer(rig);
        DefaultMQProducer traced = VersionCases.tracedProducer(rig.unique("p"));
        rig.started(traced);
        SendResult sent = rig.send(() -> traced.send(Rig.message(topic, "A", "traced")));
        rig.midpoint();
        awaitTrace(rig, traces, "Pub", sent.getMsgId());
        return "a Pub record";
    }

    private static Object traceConsumed(Rig rig) throws Exception {
        String topic = rig.topic();
        Seen traces = traceConsumer(rig);
        DefaultMQPushConsumer made = VersionCases.tracedConsumer(rig.unique("g"));
        rig.named(made);
        rig.closing(made::shutdown);
        made.subscribe(topic, "*");
        Seen seen = new Seen(made);
        made.registerMessageListener(seen.concurrently());
        made.start();
        SendResult sent = rig.send(Rig.message(topic, "A", "traced"));
        rig.awaitSeen(Rig.PATIENCE_SECONDS, seen, List.of("traced"));
        rig.midpoint();
        awaitTrace(rig, traces, "SubAfter", sent.getMsgId());
        return "a SubAfter record";
    }

    private static Seen traceConsumer(Rig rig) throws Exception {
        return rig.consume(rig.unique("g"), "RMQ_SYS_TRACE_TOPIC", "*");
    }

    private static void awaitTrace(Rig rig, Seen traces, String kind, String id) throws Exception {
        rig.await(50, kind + " of " + id, () -> traces.order().stream().distinct().anyMatch(
                key -> {
                    String text = new String(traces.message(key).getBody());
                    return text.contains(id) && text.contains(kind);
                }));
    }

    @SuppressWarnings("deprecation")
    private static Object namespace(Rig rig) throws Exception {
        String space = "NS" + rig.unique("n");
        String plain = rig.unique("t");
        DefaultMQProducer producer = new DefaultMQProducer(space, rig.unique("p"));
        rig.started(producer);
        Message first = Rig.message(plain, "A", "inside");
        rig.send(() -> producer.send(first));
        String group = rig.unique("g");
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(space, group);
        rig.named(consumer);
        rig.closing(consumer::shutdown);
        consumer.setConsumeFromWhere(
                org.apache.rocketmq.common.consumer.ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(plain, "*");
        Seen seen = new Seen(consumer);
        consumer.registerMessageListener(seen.concurrently());
        consumer.start();
        rig.midpoint();
        rig.awaitSeen(Rig.PATIENCE_SECONDS, seen, List.of("inside"));
        Check.equal("topic shown", plain, seen.message("inside").getTopic());
        var names = rig.ask(() -> rig.admin().fetchAllTopicList()).getTopicList();
        Check.that(names.contains(space + "%" + plain), "the topic's name with its space");
        return space + "%" + plain;
    }

    @SuppressWarnings("deprecation")
    private static Object namespaceRetry(Rig rig) throws Exception {
        String space = "NS" + rig.unique("n");
        String plain = rig.unique("t");
        DefaultMQProducer producer = new DefaultMQProducer(space, rig.unique("p"));
        rig.started(producer);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(space, rig.unique("g"));
        rig.named(consumer);
        rig.closing(consumer::shutdown);
        consumer.setConsumeFromWhere(
                org.apache.rocketmq.common.consumer.ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(plain, "*");
        AtomicInteger times = new AtomicInteger(-1);
        consumer.registerMessageListener(
                (MessageListenerConcurrently)
                        (given, context) -> {
                            context.setDelayLevelWhenNextConsume(1);
                            times.accumulateAndGet(given.get(0).getReconsumeTimes(), Math::max);
                            return given.get(0).getReconsumeTimes() == 0
                                    ? ConsumeConcurrentlyStatus.RECONSUME_LATER
                                    : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
                        });
        Message first = Rig.message(plain, "A", "again");
        rig.send(() -> producer.send(first));
        consumer.start();
        rig.midpoint();
        rig.await(60, "a second reading", () -> times.get() == 1);
        return "read twice";
    }
}
