package interop;

import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Set;
import java.util.stream.Collectors;
import org.junit.runner.Description;
import org.junit.runner.JUnitCore;
import org.junit.runner.Request;
import org.junit.runner.Result;
import org.junit.runner.manipulation.Filter;

/**
 * Runs classes of RocketMQ's integration tests and tells how each ended, as `Main` of the clients'
 * programs does: a JSON object per line that begins with "@@".
 *
 * <p>Arguments: name servers; two that `Main` has; names of classes below org.apache.rocketmq.test,
 * none for all. "list" prints the names. Classes run one after the other: they share their base.
 */
public final class Suite {
    private static final String PACKAGE = "org.apache.rocketmq.test.";

    private static final List<String> CLASSES = List.of(
            "client.consumer.balance.NormalMsgDynamicBalanceIT",
            "client.consumer.balance.NormalMsgStaticBalanceIT",
            "client.consumer.broadcast.normal.BroadcastNormalMsgNotReceiveIT",
            "client.consumer.broadcast.normal.BroadcastNormalMsgRecvCrashIT",
            "client.consumer.broadcast.normal.BroadcastNormalMsgRecvStartLaterIT",
            "client.consumer.broadcast.normal.BroadcastNormalMsgTwoDiffGroupRecvIT",
            "client.consumer.broadcast.normal.NormalMsgTwoSameGroupConsumerIT",
            "client.consumer.broadcast.tag.BroadcastTwoConsumerFilterIT",
            "client.consumer.broadcast.tag.BroadcastTwoConsumerSubDiffTagIT",
            "client.consumer.broadcast.tag.BroadcastTwoConsumerSubTagIT",
            "client.consumer.cluster.DynamicAddAndCrashIT",
            "client.consumer.cluster.DynamicAddConsumerIT",
            "client.consumer.cluster.DynamicCrashConsumerIT",
            "client.consumer.filter.SqlFilterIT",
            "client.consumer.tag.MulTagSubIT",
            "client.consumer.tag.TagMessageWith1ConsumerIT",
            "client.consumer.tag.TagMessageWithMulConsumerIT",
            "client.consumer.tag.TagMessageWithSameGroupConsumerIT",
            "client.consumer.topic.MulConsumerMulTopicIT",
            "client.consumer.topic.OneConsumerMulTopicIT",
            "client.producer.async.AsyncSendExceptionIT",
            "client.producer.async.AsyncSendWithMessageQueueIT",
            "client.producer.async.AsyncSendWithMessageQueueSelectorIT",
            "client.producer.async.AsyncSendWithOnlySendCallBackIT",
            "client.producer.oneway.OneWaySendExceptionIT",
            "client.producer.oneway.OneWaySendIT",
            "client.producer.oneway.OneWaySendWithMQIT",
            "client.producer.oneway.OneWaySendWithSelectorIT",
            "client.producer.exception.msg.ChinaPropIT",
            "client.producer.exception.msg.MessageExceptionIT",
            "client.producer.exception.msg.MessageUserPropIT",
            "client.producer.exception.producer.ProducerGroupAndInstanceNameValidityIT",
            "client.producer.order.OrderMsgIT",
            "client.producer.order.OrderMsgDynamicRebalanceIT",
            "client.producer.order.OrderMsgRebalanceIT",
            "client.producer.order.OrderMsgWithTagIT",
            "client.producer.querymsg.QueryMsgByIdExceptionIT",
            "client.producer.querymsg.QueryMsgByIdIT",
            "client.producer.querymsg.QueryMsgByKeyIT",
            "client.producer.transaction.TransactionalMsgIT",
            "delay.NormalMsgDelayIT",
            "tls.TlsIT",
            "tls.TlsMixIT",
            "tls.TlsMix2IT",
            "client.consumer.pop.BatchAckIT",
            "client.consumer.pop.PopBigMessageIT",
            "client.consumer.pop.PopMessageAndForwardingIT",
            "client.consumer.pop.PopOrderlyIT",
            "client.consumer.pop.NotificationIT",
            "offset.OffsetResetIT",
            "offset.OffsetResetForPopIT",
            "recall.RecallWithTraceIT",
            "recall.SendAndRecallDelayMessageIT",
            "retry.PopConsumerRetryIT");

    /** Tests of those classes that look into a broker's memory. */
    private static final Set<String> NOT_RUN = Set.of(
            "testResetOffsetThenAckOldForPopOrderly", "testRestOffsetToSkipMsgForPopOrderly");

    private Suite() {}

    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        if (arguments[0].equals("list")) {
            CLASSES.forEach(out::println);
            return;
        }
        System.setProperty("interop.servers", arguments[0]);
        List<String> wanted = List.of(arguments).subList(3, arguments.length);
        for (String name : wanted.isEmpty() ? CLASSES : wanted) {
            Request tests = Request.aClass(Class.forName(PACKAGE + name)).filterWith(FROM_OUTSIDE);
            Result result = new JUnitCore().run(tests);
            out.println("@@{\"case\":" + quoted(name)
                    + ",\"outcome\":" + quoted(outcome(result))
                    + ",\"took_ms\":" + result.getRunTime()
                    + ",\"detail\":" + quoted(told(result)) + "}");
        }
        Runtime.getRuntime().halt(0); // clients leave threads behind that would keep the machine up
    }

    private static final Filter FROM_OUTSIDE = new Filter() {
        @Override
        public boolean shouldRun(Description test) {
            String name = test.getMethodName(); // none: a parameterized class's group of tests
            return name == null || !NOT_RUN.contains(name);
        }

        @Override
        public String describe() {
            return "what can be seen from outside";
        }
    };

    private static String outcome(Result result) {
        if (result.getRunCount() == 0) {
            return "skip";
        }
        return result.wasSuccessful() ? "pass" : "fail";
    }

    private static String told(Result result) {
        int failed = result.getFailureCount();
        String counts = (result.getRunCount() - failed) + " of " + result.getRunCount() + " tests"
                + (result.getIgnoreCount() > 0 ? ", " + result.getIgnoreCount() + " ignored" : "");
        return counts + result.getFailures().stream()
                .map(each -> "; " + each.getDescription().getMethodName() + ": "
                        + String.valueOf(each.getMessage()).lines().findFirst().orElse("")
                        + each.getTrace().lines().filter(line -> line.contains("IT.")).findFirst()
                                .orElse(""))
                .collect(Collectors.joining());
    }

    /** A JSON string. */
    private static String quoted(String text) {
        StringBuilder json = new StringBuilder("\"");
        for (char c : text.toCharArray()) {
            if (c == '"' || c == '\\') {
                json.append('\\').append(c);
            } else if (c < ' ' || Character.isSurrogate(c)) {
                json.append(String.format("\\u%04x", (int) c));
            } else {
                json.append(c);
            }
        }
        return json.append('"').toString();
    }
}
