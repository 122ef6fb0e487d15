package interop;

import java.nio.charset.StandardCharsets;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.remoting.RPCHook;
import org.apache.rocketmq.remoting.exception.RemotingException;

/**
 * Clients with accounts and TLS. Each line of output is a case and how it ended.
 *
 * <p>Arguments: the name servers, and "tls" or "plain". campaigns/interop/security.py knows the
 * accounts and what is expected.
 */
public final class Secured {
    private static final int NO_PERMISSION = 16;
    private static final int SEND_MILLIS_MAX = 5_000;
    private static final int CONSUME_SECONDS_MAX = 30;

    private final String nameServers;
    private final boolean tls;

    private Secured(String nameServers, boolean tls) {
        this.nameServers = nameServers;
        this.tls = tls;
    }

    public static void main(String[] arguments) throws Exception {
        Secured all = new Secured(arguments[0], arguments[1].equals("tls"));
        all.send("good", "producer1", "secret-of-producer", "orders", all.tls);
        all.send("unsigned", null, null, "orders", all.tls);
        all.send("wrong-secret", "producer1", "another-secret", "orders", all.tls);
        all.send("unknown-account", "nobody01", "another-secret", "orders", all.tls);
        all.send("no-permission", "producer1", "secret-of-producer", "payments", all.tls);
        if (all.tls) {
            all.send("plain-text", "producer1", "secret-of-producer", "orders", false);
        }
        all.consume();
        System.exit(0);
    }

    private static RPCHook hook(String account, String secret) {
        return account == null ? null : new AclClientRPCHook(new SessionCredentials(account, secret));
    }

    /** One attempt; a body names its case, so that nothing that was refused is taken for stored. */
    private void send(String name, String account, String secret, String topic, boolean tls)
            throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("PG", hook(account, secret));
        producer.setNamesrvAddr(nameServers);
        producer.setUseTLS(tls);
        producer.setInstanceName(name);
        producer.setRetryTimesWhenSendFailed(0);
        producer.start();
        try {
            Message message = new Message(topic, name.getBytes(StandardCharsets.UTF_8));
            tell(name, producer.send(message, SEND_MILLIS_MAX).getSendStatus().toString());
        } catch (MQClientException failed) {
            tell(name, failed.getCause() instanceof MQBrokerException
                    ? told((MQBrokerException) failed.getCause())
                    : "failed " + oneLine(failed));
        } catch (MQBrokerException refused) {
            tell(name, told(refused));
        } catch (RemotingException | IllegalStateException failed) {
            tell(name, "failed " + oneLine(failed));
        } finally {
            producer.shutdown();
        }
    }

    private static String told(MQBrokerException refused) {
        boolean byAccount = refused.getResponseCode() == NO_PERMISSION
                || refused.getErrorMessage().contains("AclException"); // with code 1, up to 5.2
        return (byAccount ? "refused " : "failed ") + oneLine(refused);
    }

    private static String oneLine(Exception failed) {
        return String.valueOf(failed.getMessage()).lines().findFirst().orElse("");
    }

    private void consume() throws Exception {
        Set<String> bodies = ConcurrentHashMap.newKeySet();
        CountDownLatch first = new CountDownLatch(1);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(
                "CG", hook("consumer1", "secret-of-consumer"), new AllocateMessageQueueAveragely());
        consumer.setNamesrvAddr(nameServers);
        consumer.setUseTLS(tls);
        consumer.subscribe("orders", "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(each -> bodies.add(new String(each.getBody(), StandardCharsets.UTF_8)));
            first.countDown();
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        boolean came = first.await(CONSUME_SECONDS_MAX, TimeUnit.SECONDS);
        Thread.sleep(2_000); // what must not come would have come by now
        consumer.shutdown();
        tell("consumed", came ? String.join(",", bodies) : "nothing");
    }

    private static void tell(String name, String ended) {
        System.out.println("@@" + name + "=" + ended);
    }
}
