package interop;

import java.util.HashSet;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.protocol.heartbeat.MessageModel;
import org.apache.rocketmq.common.subscription.SubscriptionGroupConfig;

/** What only the 4.9 client has, or has under other names. */
final class VersionCases {
    static final boolean POPS = false;

    private VersionCases() {}

    static void addTo(Catalogue all) {
        // 4.9 can nothing that 5.3 can't.
    }

    static Object popGoesOn(Rig rig) {
        throw new AssertionError("4.9 knows no pop");
    }

    static MessageModel broadcasting() {
        return MessageModel.BROADCASTING;
    }

    static SubscriptionGroupConfig group(String name, boolean enabled) {
        SubscriptionGroupConfig config = new SubscriptionGroupConfig();
        config.setGroupName(name);
        config.setConsumeEnable(enabled);
        return config;
    }

    static void createTopic(DefaultMQProducer producer, String topic, int queues)
            throws org.apache.rocketmq.client.exception.MQClientException {
        producer.createTopic("TBW102", topic, queues);
    }

    /** The two clients take name and cluster in different order. */
    static void forgetTopic(Rig rig, String name) throws Exception {
        rig.admin().deleteTopicInNameServer(
                new HashSet<>(rig.admin().getNameServerAddressList()), name, "DefaultCluster");
    }

    static DefaultMQProducer tracedProducer(String group) {
        return new DefaultMQProducer(group, true);
    }

    static DefaultMQPushConsumer tracedConsumer(String group) {
        return new DefaultMQPushConsumer(group, true);
    }
}
