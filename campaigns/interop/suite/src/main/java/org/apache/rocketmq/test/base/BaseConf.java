package org.apache.rocketmq.test.base;

import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.broker.offset.ConsumerOffsetManager;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.impl.MQClientAPIImpl;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.MQVersion;
import org.apache.rocketmq.common.attribute.CQType;
import org.apache.rocketmq.common.attribute.TopicMessageType;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.namesrv.NamesrvController;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.body.ClusterInfo;
import org.apache.rocketmq.remoting.protocol.header.QueryConsumerOffsetRequestHeader;
import org.apache.rocketmq.remoting.protocol.subscription.SubscriptionGroupConfig;
import org.apache.rocketmq.store.MessageStore;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.test.client.rmq.RMQAsyncSendProducer;
import org.apache.rocketmq.test.client.rmq.RMQNormalConsumer;
import org.apache.rocketmq.test.client.rmq.RMQNormalProducer;
import org.apache.rocketmq.test.client.rmq.RMQTransactionalProducer;
import org.apache.rocketmq.test.factory.ConsumerFactory;
import org.apache.rocketmq.test.listener.AbstractListener;
import org.apache.rocketmq.test.util.MQAdminTestUtils;
import org.apache.rocketmq.test.util.MQRandomUtils;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * The base class of RocketMQ's integration tests, for a cluster that runs already: it stands before
 * theirs on the class path, which would start a name server and three brokers in this machine.
 *
 * <p>Property "interop.servers" tells the name servers. The controllers that tests look at are never
 * started: they tell where the brokers of the cluster are and look up what tests ask them; what is
 * set in them changes nothing.
 */
public class BaseConf {
    public static final String NAMESRV_ADDR = System.getProperty("interop.servers");
    protected static final String CLUSTER_NAME = "DefaultCluster";
    protected static final String BROKER1_NAME;
    protected static final String BROKER2_NAME;
    protected static final String BROKER3_NAME;
    protected static final int BROKER_NUM = 3;
    protected static final int WAIT_TIME = 5;
    protected static final int CONSUME_TIME = 120_000;
    protected static final int QUEUE_NUMBERS = 8;

    protected static NamesrvController namesrvController;
    protected static BrokerController brokerController1;
    protected static BrokerController brokerController2;
    protected static BrokerController brokerController3;
    protected static List<BrokerController> brokerControllerList;
    protected static Map<String, BrokerController> brokerControllerMap = new TreeMap<>();
    protected static List<Object> mqClients = new ArrayList<>();
    protected static boolean debug = false;

    private static final long PATIENCE_MS = 30_000;
    private static final long LOOK_UP_MS = 5_000;
    private static final DefaultMQAdminExt ADMIN = new DefaultMQAdminExt(LOOK_UP_MS);

    static {
        String version = Integer.toString(MQVersion.CURRENT_VERSION);
        System.setProperty(RemotingCommand.REMOTING_VERSION_KEY, version);
        IntegrationTestBase.initMQAdmin(NAMESRV_ADDR);
        ADMIN.setNamesrvAddr(NAMESRV_ADDR);
        ADMIN.setInstanceName("masters");
        try {
            ADMIN.start();
        } catch (MQClientException e) {
            throw new IllegalStateException("no client of " + NAMESRV_ADDR, e);
        }
        masters(BROKER_NUM).forEach((name, address) ->
                brokerControllerMap.put(name, standIn(name, address)));
        List<String> names = List.copyOf(brokerControllerMap.keySet());
        BROKER1_NAME = names.get(0);
        BROKER2_NAME = names.get(1);
        BROKER3_NAME = names.get(2);
        brokerControllerList = List.copyOf(brokerControllerMap.values());
        brokerController1 = brokerControllerList.get(0);
        brokerController2 = brokerControllerList.get(1);
        brokerController3 = brokerControllerList.get(2);
    }

    /** Broker names and their masters' addresses, once there are `count`. */
    private static Map<String, String> masters(int count) {
        long deadline = System.currentTimeMillis() + PATIENCE_MS;
        Map<String, String> found = new TreeMap<>();
        try {
            while (found.size() < count && System.currentTimeMillis() < deadline) {
                ClusterInfo cluster = ADMIN.examineBrokerClusterInfo();
                cluster.getBrokerAddrTable().forEach((name, broker) -> {
                    String master = broker.getBrokerAddrs().get(0L);
                    if (master != null) {
                        found.put(name, master);
                    }
                });
                TimeUnit.MILLISECONDS.sleep(100);
            }
        } catch (Exception e) {
            throw new IllegalStateException("no cluster at " + NAMESRV_ADDR, e);
        }
        if (found.size() < count) {
            throw new IllegalStateException("of " + count + " masters there are " + found);
        }
        return found;
    }

    private static BrokerController standIn(String name, String address) {
        int colon = address.lastIndexOf(':');
        BrokerConfig broker = new BrokerConfig();
        broker.setBrokerName(name);
        broker.setBrokerIP1(address.substring(0, colon));
        NettyServerConfig server = new NettyServerConfig();
        server.setListenPort(Integer.parseInt(address.substring(colon + 1)));
        MessageStoreConfig store = new MessageStoreConfig();
        store.setStorePathRootDir(IntegrationTestBase.createBaseDir());
        return new StandIn(broker, server, store);
    }

    /** A controller that looks up what tests ask of its broker's queues and offsets. */
    private static final class StandIn extends BrokerController {
        private MessageStore queues;
        private ConsumerOffsetManager offsets;

        StandIn(BrokerConfig broker, NettyServerConfig server, MessageStoreConfig store) {
            super(broker, server, new NettyClientConfig(), store);
            queues = (MessageStore) Proxy.newProxyInstance(
                    BaseConf.class.getClassLoader(),
                    new Class<?>[] {MessageStore.class},
                    (proxy, method, given) -> {
                        if (!method.getName().equals("getMaxOffsetInQueue")) {
                            throw new UnsupportedOperationException(method.toString());
                        }
                        return end((String) given[0], (Integer) given[1]);
                    });
            offsets = new ConsumerOffsetManager(this) {
                @Override
                public long queryOffset(String group, String topic, int queueId) {
                    return committed(group, topic, queueId);
                }
            };
        }

        @Override
        public MessageStore getMessageStore() {
            return queues;
        }

        @Override
        public ConsumerOffsetManager getConsumerOffsetManager() {
            return offsets == null ? super.getConsumerOffsetManager() : offsets;
        }

        private long end(String topic, int queueId) throws Exception {
            String name = getBrokerConfig().getBrokerName();
            MessageQueue queue = new MessageQueue(topic, name, queueId);
            return api().getMaxOffset(getBrokerAddr(), queue, LOOK_UP_MS);
        }

        private long committed(String group, String topic, int queueId) {
            QueryConsumerOffsetRequestHeader header = new QueryConsumerOffsetRequestHeader();
            header.setConsumerGroup(group);
            header.setTopic(topic);
            header.setQueueId(queueId);
            try {
                return api().queryConsumerOffset(getBrokerAddr(), header, LOOK_UP_MS);
            } catch (Exception e) {
                throw new IllegalStateException("no offset of " + group, e);
            }
        }

        private static MQClientAPIImpl api() {
            return ADMIN.getDefaultMQAdminExtImpl().getMqClientInstance().getMQClientAPIImpl();
        }
    }

    public BaseConf() {
        waitBrokerRegistered(NAMESRV_ADDR, CLUSTER_NAME, BROKER_NUM);
    }

    public static void waitBrokerRegistered(String servers, String cluster, int count) {
        masters(count);
    }

    /** Nothing of what is stored here waits to be served. */
    public boolean awaitDispatchMs(long timeMs) throws Exception {
        return true;
    }

    // Topics and groups.

    public static String initTopic() {
        return initTopicWithName(MQRandomUtils.getRandomTopic());
    }

    public static String initTopic(TopicMessageType type) {
        return initTopicWithName(MQRandomUtils.getRandomTopic(), type);
    }

    public static String initTopicWithName(String topic) {
        IntegrationTestBase.initTopic(topic, NAMESRV_ADDR, CLUSTER_NAME, CQType.SimpleCQ);
        return topic;
    }

    public static String initTopicWithName(String topic, TopicMessageType type) {
        IntegrationTestBase.initTopic(topic, NAMESRV_ADDR, CLUSTER_NAME, type);
        return topic;
    }

    public static String initTopicOnSampleTopicBroker(String sample) {
        return initTopicOnSampleTopicBroker(MQRandomUtils.getRandomTopic(), sample);
    }

    public static String initTopicOnSampleTopicBroker(String sample, TopicMessageType type) {
        return initTopicOnSampleTopicBroker(MQRandomUtils.getRandomTopic(), sample, type);
    }

    public static String initTopicOnSampleTopicBroker(String topic, String sample) {
        IntegrationTestBase.initTopic(topic, NAMESRV_ADDR, sample, CQType.SimpleCQ);
        return topic;
    }

    public static String initTopicOnSampleTopicBroker(
            String topic, String sample, TopicMessageType type) {
        IntegrationTestBase.initTopic(topic, NAMESRV_ADDR, sample, type);
        return topic;
    }

    public static String initConsumerGroup() {
        return initConsumerGroup(MQRandomUtils.getRandomConsumerGroup());
    }

    public static String initConsumerGroup(String group) {
        SubscriptionGroupConfig config = new SubscriptionGroupConfig();
        config.setGroupName(group);
        return initConsumerGroup(config);
    }

    public static String initConsumerGroup(SubscriptionGroupConfig config) {
        MQAdminTestUtils.createSub(NAMESRV_ADDR, CLUSTER_NAME, config);
        return config.getGroupName();
    }

    // Clients, ended by `shutdown`.

    private static <T> T kept(T client) {
        mqClients.add(client);
        return client;
    }

    public static DefaultMQAdminExt getAdmin(String servers) {
        DefaultMQAdminExt admin = new DefaultMQAdminExt(3_000);
        admin.setNamesrvAddr(servers);
        admin.setPollNameServerInterval(100);
        return kept(admin);
    }

    public static RMQNormalProducer getProducer(String servers, String topic) {
        return getProducer(servers, topic, false);
    }

    public static RMQNormalProducer getProducer(String servers, String topic, boolean useTLS) {
        return kept(new RMQNormalProducer(servers, topic, useTLS));
    }

    public static RMQNormalProducer getProducer(
            String servers, String topic, String group, String instance) {
        return kept(new RMQNormalProducer(servers, topic, group, instance));
    }

    public static RMQTransactionalProducer getTransactionalProducer(
            String servers, String topic, TransactionListener listener) {
        return kept(new RMQTransactionalProducer(servers, topic, false, listener));
    }

    public static RMQAsyncSendProducer getAsyncProducer(String servers, String topic) {
        return kept(new RMQAsyncSendProducer(servers, topic));
    }

    public static RMQNormalConsumer getConsumer(
            String servers, String topic, String expression, AbstractListener listener) {
        return getConsumer(servers, topic, expression, listener, false);
    }

    public static RMQNormalConsumer getConsumer(
            String servers,
            String topic,
            String expression,
            AbstractListener listener,
            boolean useTLS) {
        return getConsumer(servers, initConsumerGroup(), topic, expression, listener, useTLS);
    }

    public static RMQNormalConsumer getConsumer(
            String servers,
            String group,
            String topic,
            String expression,
            AbstractListener listener) {
        return getConsumer(servers, group, topic, expression, listener, false);
    }

    public static RMQNormalConsumer getConsumer(
            String servers,
            String group,
            String topic,
            String expression,
            AbstractListener listener,
            boolean useTLS) {
        return kept(ConsumerFactory.getRMQNormalConsumer(
                servers, group, topic, expression, listener, useTLS));
    }

    public static Set<String> getBrokers() {
        return Set.copyOf(brokerControllerMap.keySet());
    }

    public static void shutdown() {
        List<Object> clients = List.copyOf(mqClients);
        mqClients.clear();
        shutdown(clients);
    }

    /** Whatever they are, they have this method. */
    public static void shutdown(List<Object> clients) {
        for (Object client : clients) {
            try {
                client.getClass().getMethod("shutdown").invoke(client);
            } catch (ReflectiveOperationException e) {
                throw new IllegalStateException(client + " can't be ended", e);
            }
        }
    }
}
