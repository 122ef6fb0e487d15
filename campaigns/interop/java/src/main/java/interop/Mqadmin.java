package interop;

import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * mqadmin without a machine per command: each line of standard input is the arguments of one, by
 * tabs; what it printed is a line of JSON behind "@@".
 *
 * <p>Argument: the name servers. Before the first command there is a topic with messages, a group
 * with a member that has read them, and a producer; the first line tells their names. With "-" as
 * the second argument there is none of it, and no name. Commands that would end the machine end
 * only themselves.
 */
public final class Mqadmin {
    private static final int SECONDS_MAX = 25;

    private Mqadmin() {}

    private static final class Ended extends SecurityException {
        Ended(int code) {
            super("exit " + code);
        }
    }

    @SuppressWarnings("removal")
    private static final class NoExit extends SecurityManager {
        @Override
        public void checkExit(int code) {
            throw new Ended(code);
        }

        @Override
        public void checkPermission(java.security.Permission permission) {
            // all else is allowed
        }
    }

    @SuppressWarnings("removal")
    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        BufferedReader in =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        if (arguments.length > 1) {
            out.println("@@{}");
        } else {
            Rig.Place place = new Rig.Place(arguments[0], "x", false);
            out.println("@@" + furnish(new Rig(place, "mqadmin", () -> {})));
        }
        System.setSecurityManager(new NoExit());
        ExecutorService threads = Executors.newCachedThreadPool();
        String line;
        while ((line = in.readLine()) != null) {
            String[] words = line.split("\t");
            ByteArrayOutputStream printed = new ByteArrayOutputStream();
            PrintStream catching = new PrintStream(printed, true, StandardCharsets.UTF_8);
            System.setOut(catching);
            System.setErr(catching);
            var running = threads.submit(() -> runOne(words, catching));
            boolean late = false;
            try {
                running.get(SECONDS_MAX, TimeUnit.SECONDS);
            } catch (TimeoutException e) {
                running.cancel(true);
                late = true;
            }
            String text = printed.toString(StandardCharsets.UTF_8);
            out.println("@@{\"late\":" + late + ",\"printed\":" + Main.quoted(text) + "}");
        }
        Runtime.getRuntime().halt(0);
    }

    /** What the commands ask about, as JSON. */
    private static String furnish(Rig rig) throws Exception {
        String topic = rig.topic(2);
        String group = rig.unique("g");
        Seen seen = rig.consume(group, topic, "*");
        SendResult sent = rig.send(Rig.message(topic, "TagA", "keyA"));
        rig.sendAll(topic, "TagA", "m", 0, 9);
        rig.awaitSeen(Rig.PATIENCE_SECONDS, seen, Seen.keys("m", 0, 9));
        String idle = rig.unique("idle");
        AdminCases.createGroup(rig, idle);
        DefaultMQProducer tracing = rig.started(VersionCases.tracedProducer(rig.unique("trace")));
        SendResult traced = tracing.send(Rig.message(topic, "TagA", "keyT"));
        Thread.sleep(32_000); // producers tell brokers of themselves every 30 s, the rest is sooner
        Map<String, String> names = new LinkedHashMap<>();
        names.put("topic", topic);
        names.put("group", group);
        names.put("idle", idle);
        names.put("producers", rig.producer().getProducerGroup());
        names.put("id", sent.getMsgId());
        names.put("traced", traced.getMsgId());
        names.put("offset_id", sent.getOffsetMsgId());
        names.put("broker", AdminCases.master(rig));
        names.put("name", sent.getMessageQueue().getBrokerName());
        names.put("queue", String.valueOf(sent.getMessageQueue().getQueueId()));
        names.put("client", seen.consumer().getDefaultMQPushConsumerImpl().getmQClientFactory()
                .getClientId());
        StringBuilder json = new StringBuilder();
        names.forEach((name, value) -> json.append(json.length() == 0 ? "{" : ",")
                .append(Main.quoted(name)).append(":").append(Main.quoted(value)));
        return json.append("}").toString();
    }

    private static void runOne(String[] words, PrintStream out) {
        try {
            forget();
            MQAdminStartup.main0(words, null);
        } catch (Ended e) {
            out.println(e.getMessage());
        } catch (ReflectiveOperationException e) {
            throw new IllegalStateException(e);
        }
    }

    /** Each run of the tool makes its commands anew; some are good for one run only. */
    private static void forget() throws ReflectiveOperationException {
        Field commands = MQAdminStartup.class.getDeclaredField("SUB_COMMANDS");
        commands.setAccessible(true);
        ((List<?>) commands.get(null)).clear();
    }
}
