package interop;

import java.util.List;
import java.util.Properties;
import java.util.Set;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.exception.RemotingException;

/** What an administrator does through DefaultMQAdminExt. */
final class AdminCases {
    private AdminCases() {}

    static void addTo(Catalogue all) {
        all.add("admin-cluster", AdminCases::cluster);
        all.add("admin-topic", AdminCases::topic);
        all.add("admin-topic-delete", AdminCases::topicDelete);
        all.add("admin-topic-stats", AdminCases::topicStats);
        all.add("admin-topic-read-only", AdminCases::readOnly);
        all.add("admin-topic-write-only", AdminCases::writeOnly);
        all.add("admin-group", AdminCases::group);
        all.add("admin-group-disabled", AdminCases::groupDisabled);
        all.add("admin-connections", AdminCases::connections);
        all.add("admin-running-info", AdminCases::runningInfo);
        all.add("admin-consume-directly", AdminCases::directly);
        all.add("admin-who-consumes", AdminCases::whoConsumes);
        all.add("admin-time-span", AdminCases::timeSpan);
        all.add("admin-consume-queue", AdminCases::consumeQueue);
        all.add("admin-broker-config", AdminCases::brokerConfig);
        all.add("admin-runtime", AdminCases::runtime);
        all.add("admin-kv-config", AdminCases::kvConfig);
        all.add("admin-name-server-config", AdminCases::nameServerConfig);
        all.add("admin-clean-ups", AdminCases::cleanUps);
        all.add("admin-offline-group", AdminCases::offline);
        all.add("admin-message-track", AdminCases::track);
    }

    static String master(Rig rig) throws Exception {
        String[] address = new String[1];
        rig.await(Rig.PATIENCE_SECONDS, "a master", () -> {
            rig.admin().examineBrokerClusterInfo().getBrokerAddrTable().values()
                    .forEach(each -> address[0] = each.getBrokerAddrs().get(0L));
            return address[0] != null;
        });
        return address[0];
    }

    static void configure(Rig rig, TopicConfig config) throws Exception {
        rig.ask(() -> {
            rig.admin().createAndUpdateTopicConfig(master(rig), config);
            return true;
        });
    }

    static void createGroup(Rig rig, String name) throws Exception {
        rig.ask(() -> {
            rig.admin().createAndUpdateSubscriptionGroupConfig(
                    master(rig), VersionCases.group(name, true));
            return true;
        });
    }

    private static Object cluster(Rig rig) throws Exception {
        var info = rig.ask(() -> rig.admin().examineBrokerClusterInfo());
        Check.that(info.getClusterAddrTable().containsKey("DefaultCluster"), "DefaultCluster");
        var names = rig.ask(() -> rig.admin().fetchAllTopicList()).getTopicList();
        Check.that(names.contains("DefaultCluster"), "the cluster's own topic among " + names.size());
        String topic = rig.topic();
        rig.midpoint();
        var ofCluster = rig.ask(() -> rig.admin().fetchTopicsByCLuster("DefaultCluster"));
        Check.that(ofCluster.getTopicList().contains(topic), "a new topic of the cluster");
        Check.equal("clusters", Set.of("DefaultCluster"),
                rig.ask(() -> rig.admin().getTopicClusterList(topic)));
        return info.getBrokerAddrTable().keySet();
    }

    private static Object topic(Rig rig) throws Exception {
        String name = rig.unique("t");
        configure(rig, new TopicConfig(name, 3, 3, 6));
        rig.midpoint();
        var config = rig.ask(() -> rig.admin().examineTopicConfig(master(rig), name));
        Check.equal("queues", "3 3", config.getReadQueueNums() + " " + config.getWriteQueueNums());
        rig.await(Rig.PATIENCE_SECONDS, "the route", () -> {
            try {
                return rig.admin().examineTopicRouteInfo(name).getQueueDatas().get(0)
                        .getWriteQueueNums() == 3;
            } catch (org.apache.rocketmq.client.exception.MQClientException e) {
                return false; // no route yet
            }
        });
        configure(rig, new TopicConfig(name, 5, 5, 6));
        rig.await(Rig.PATIENCE_SECONDS, "five queues", () ->
                rig.admin().examineTopicRouteInfo(name).getQueueDatas().get(0).getWriteQueueNums() == 5);
        Check.fails("", () -> {
            rig.admin().createAndUpdateTopicConfig(master(rig), new TopicConfig("bad topic!", 3, 3, 6));
            return "created";
        });
        return "3, then 5 queues";
    }

    private static Object topicDelete(Rig rig) throws Exception {
        String name = rig.topic();
        rig.sendAll(name, "A", "m", 0, 8);
        rig.midpoint();
        rig.ask(() -> {
            rig.admin().deleteTopicInBroker(Set.of(master(rig)), name);
            VersionCases.forgetTopic(rig, name);
            return true;
        });
        rig.await(Rig.PATIENCE_SECONDS, "no route", () -> {
            try {
                rig.admin().examineTopicRouteInfo(name);
                return false;
            } catch (org.apache.rocketmq.client.exception.MQClientException e) {
                return e.getResponseCode() == 17;
            }
        });
        rig.await(Rig.PATIENCE_SECONDS, "the name is free", () -> {
            try {
                rig.admin().examineTopicStats(name);
                return false;
            } catch (org.apache.rocketmq.client.exception.MQClientException
                    | org.apache.rocketmq.client.exception.MQBrokerException e) {
                return true;
            }
        });
        configure(rig, new TopicConfig(name, 4, 4, 6));
        rig.await(Rig.PATIENCE_SECONDS, "a route again", () -> {
            try {
                return rig.admin().examineTopicRouteInfo(name) != null;
            } catch (org.apache.rocketmq.client.exception.MQClientException e) {
                return false;
            }
        });
        Seen seen = rig.consume(rig.unique("g"), name, "*");
        rig.sendAll(name, "A", "n", 0, 8);
        rig.awaitSeen(Rig.PATIENCE_SECONDS, seen, Seen.keys("n", 0, 8));
        Check.equal("read", 8, seen.size());
        return "what it held is gone, what came after is there";
    }

    private static Object topicStats(Rig rig) throws Exception {
        String name = rig.topic();
        rig.sendAll(name, "A", "m", 0, 12);
        rig.midpoint();
        var stats = rig.ask(() -> rig.admin().examineTopicStats(name)).getOffsetTable();
        Check.equal("queues", 4, stats.size());
        long sum = 0;
        for (var each : stats.values()) {
            sum += each.getMaxOffset() - each.getMinOffset();
            Check.that(each.getLastUpdateTimestamp() > 0, "time of the last message");
        }
        Check.equal("messages", 12L, sum);
        return "12 in 4 queues";
    }

    private static Object readOnly(Rig rig) throws Exception {
        String name = rig.topic();
        rig.sendAll(name, "A", "m", 0, 4);
        configure(rig, new TopicConfig(name, 4, 4, 4));
        Seen seen = rig.consume(rig.unique("g"), name, "*");
        rig.midpoint();
        rig.awaitSeen(Rig.PATIENCE_SECONDS, seen, Seen.keys("m", 0, 4));
        org.apache.rocketmq.client.producer.DefaultMQProducer fresh =
                rig.started(new org.apache.rocketmq.client.producer.DefaultMQProducer(rig.unique("p")));
        return Check.fails("", () -> fresh.send(Rig.message(name, "A", "no")));
    }

    @SuppressWarnings("deprecation")
    private static Object writeOnly(Rig rig) throws Exception {
        String name = rig.topic(1);
        rig.send(Rig.message(name, "A", "m"));
        var consumer = rig.pull(rig.unique("g"));
        MessageQueue queue = rig.queues(name).get(0);
        configure(rig, new TopicConfig(name, 1, 1, 2));
        return Check.fails("CODE: 16", () -> consumer.pull(queue, "*", 0, 1));
    }

    private static Object group(Rig rig) throws Exception {
        String name = rig.unique("g");
        createGroup(rig, name);
        rig.midpoint();
        var config = rig.ask(() -> rig.admin().examineSubscriptionGroupConfig(master(rig), name));
        Check.equal("name", name, config.getGroupName());
        Check.equal("retries", 16, config.getRetryMaxTimes());
        var all = rig.ask(() -> rig.admin().getAllSubscriptionGroup(master(rig), 5_000));
        Check.that(all.getSubscriptionGroupTable().containsKey(name), "among all groups");
        rig.ask(() -> {
            rig.admin().deleteSubscriptionGroup(master(rig), name, true);
            return true;
        });
        var after = rig.ask(() -> rig.admin().getAllSubscriptionGroup(master(rig), 5_000));
        Check.that(!after.getSubscriptionGroupTable().containsKey(name), "gone");
        return "made and deleted";
    }

    @SuppressWarnings("deprecation")
    private static Object groupDisabled(Rig rig) throws Exception {
        String topic = rig.topic(1);
        String name = rig.unique("g");
        rig.send(Rig.message(topic, "A", "m"));
        rig.ask(() -> {
            rig.admin().createAndUpdateSubscriptionGroupConfig(
                    master(rig), VersionCases.group(name, false));
            return true;
        });
        var consumer = rig.pull(name);
        MessageQueue queue = rig.queues(topic).get(0);
        return Check.fails("CODE: 16", () -> consumer.pull(queue, "*", 0, 1));
    }

    private static Object connections(Rig rig) throws Exception {
        String topic = rig.topic();
        String group = rig.unique("g");
        Seen seen = rig.consume(group, topic, "TagA || TagB");
        rig.midpoint();
        rig.await(40, "one consumer's connection", () -> {
            try {
                return rig.admin().examineConsumerConnectionInfo(group).getConnectionSet().size() == 1;
            } catch (MQClientException | MQBrokerException | RemotingException e) {
                return false; // its heartbeat has not come yet
            }
        });
        var info = rig.ask(() -> rig.admin().examineConsumerConnectionInfo(group));
        Check.equal("subscription", "TagA || TagB",
                info.getSubscriptionTable().get(topic).getSubString());
        var one = info.getConnectionSet().iterator().next();
        Check.equal("client", seen.consumer().getDefaultMQPushConsumerImpl().getmQClientFactory()
                .getClientId(), one.getClientId());
        String producers = rig.producer().getProducerGroup();
        rig.send(Rig.message(topic, "TagA", "m"));
        rig.await(40, "one producer's connection", () -> {
            try {
                return rig.admin().examineProducerConnectionInfo(producers, topic)
                        .getConnectionSet().size() == 1;
            } catch (MQClientException | MQBrokerException | RemotingException e) {
                return false; // its heartbeat has not come yet
            }
        });
        return one.getClientAddr() + " version " + one.getVersion();
    }

    private static String clientId(Seen seen) {
        return seen.consumer().getDefaultMQPushConsumerImpl().getmQClientFactory().getClientId();
    }

    private static Object runningInfo(Rig rig) throws Exception {
        String topic = rig.topic();
        String group = rig.unique("g");
        Seen seen = rig.consume(group, topic, "*");
        rig.sendAll(topic, "A", "m", 0, 10);
        rig.awaitSeen(Rig.PATIENCE_SECONDS, seen, Seen.keys("m", 0, 10));
        rig.midpoint();
        var info = rig.ask(() -> rig.admin().getConsumerRunningInfo(group, clientId(seen), false));
        Check.that(info.getProperties().containsKey("PROP_CLIENT_VERSION"), "properties");
        long queues = info.getMqTable().keySet().stream()
                .filter(each -> each.getTopic().equals(topic)).count();
        Check.equal("queues", 4L, queues);
        Check.that(info.getStatusTable().containsKey(topic), "figures of " + topic);
        return queues + " queues";
    }

    private static Object directly(Rig rig) throws Exception {
        String topic = rig.topic();
        String group = rig.unique("g");
        Seen seen = rig.consume(group, topic, "*");
        SendResult sent = rig.send(Rig.message(topic, "A", "direct"));
        rig.awaitSeen(Rig.PATIENCE_SECONDS, seen, List.of("direct"));
        rig.midpoint();
        var result = rig.ask(() -> rig.admin().consumeMessageDirectly(
                group, clientId(seen), topic, sent.getMsgId()));
        Check.equal("result", "CR_SUCCESS", String.valueOf(result.getConsumeResult()));
        Check.that(seen.times("direct") >= 2, "read again");
        return result.getSpentTimeMills() + " ms";
    }

    private static Object whoConsumes(Rig rig) throws Exception {
        String topic = rig.topic();
        String group = rig.unique("g");
        Seen seen = rig.consume(group, topic, "*");
        rig.sendAll(topic, "A", "m", 0, 4);
        rig.awaitSeen(Rig.PATIENCE_SECONDS, seen, Seen.keys("m", 0, 4));
        rig.midpoint();
        rig.await(40, "the group", () ->
                rig.ask(() -> rig.admin().queryTopicConsumeByWho(topic)).getGroupList().contains(group));
        return group;
    }

    private static Object timeSpan(Rig rig) throws Exception {
        String topic = rig.topic();
        String group = rig.unique("g");
        Seen seen = rig.consume(group, topic, "*");
        rig.sendAll(topic, "A", "m", 0, 8);
        rig.awaitSeen(Rig.PATIENCE_SECONDS, seen, Seen.keys("m", 0, 8));
        rig.midpoint();
        var spans = rig.ask(() -> rig.admin().queryConsumeTimeSpan(topic, group));
        Check.equal("queues", 4, spans.size());
        for (var each : spans) {
            Check.that(each.getMinTimeStamp() > 0 && each.getMaxTimeStamp() >= each.getMinTimeStamp(),
                    "times " + each.getMinTimeStamp() + " " + each.getMaxTimeStamp());
        }
        return "4 queues";
    }

    private static Object consumeQueue(Rig rig) throws Exception {
        String topic = rig.topic(1);
        rig.sendAll(topic, "A", "m", 0, 5);
        rig.midpoint();
        var answer = rig.ask(() -> rig.admin().queryConsumeQueue(master(rig), topic, 0, 1, 3, null));
        Check.equal("units", 3, answer.getQueueData().size());
        Check.equal("end", 5L, answer.getMaxQueueIndex());
        var unit = answer.getQueueData().get(0);
        Check.equal("tag's code", (long) "A".hashCode(), unit.getTagsCode());
        Check.that(unit.getPhysicSize() > 90, "size " + unit.getPhysicSize());
        return "units 1 to 3";
    }

    private static Object brokerConfig(Rig rig) throws Exception {
        Properties config = rig.ask(() -> rig.admin().getBrokerConfig(master(rig)));
        for (String key : List.of("brokerName", "brokerClusterName", "maxMessageSize",
                "fileReservedTime", "deleteWhen", "autoCreateTopicEnable")) {
            Check.that(config.containsKey(key), key);
        }
        rig.midpoint();
        Properties change = new Properties();
        change.setProperty("fileReservedTime", "71");
        rig.ask(() -> {
            rig.admin().updateBrokerConfig(master(rig), change);
            return true;
        });
        Check.equal("fileReservedTime", "71",
                rig.ask(() -> rig.admin().getBrokerConfig(master(rig))).getProperty("fileReservedTime"));
        return config.size() + " settings";
    }

    private static Object runtime(Rig rig) throws Exception {
        var table = rig.ask(() -> rig.admin().fetchBrokerRuntimeStats(master(rig))).getTable();
        for (String key : List.of("brokerVersionDesc", "putTps", "getTransferredTps", "bootTimestamp",
                "msgPutTotalTodayNow", "msgGetTotalTodayNow", "commitLogDiskRatio",
                "earliestMessageTimeStamp", "sendThreadPoolQueueSize", "pullThreadPoolQueueSize",
                "pageCacheLockTimeMills", "commitLogMaxOffset", "commitLogMinOffset")) {
            Check.that(table.containsKey(key), key);
        }
        String topic = rig.topic();
        rig.midpoint();
        long before = putTotal(rig);
        rig.sendAll(topic, "A", "m", 0, 5);
        rig.await(Rig.PATIENCE_SECONDS, "five more", () -> rig.faults() || putTotal(rig) >= before + 5);
        return table.size() + " figures";
    }

    private static long putTotal(Rig rig) throws Exception {
        return Long.parseLong(rig.ask(() -> rig.admin().fetchBrokerRuntimeStats(master(rig)))
                .getTable().get("msgPutTotalTodayNow"));
    }

    private static Object kvConfig(Rig rig) throws Exception {
        String space = rig.unique("ns");
        rig.ask(() -> {
            rig.admin().createAndUpdateKvConfig(space, "key", "wert 中");
            return true;
        });
        rig.midpoint();
        Check.equal("value", "wert 中", rig.ask(() -> rig.admin().getKVConfig(space, "key")));
        Check.equal("list", 1, rig.ask(() -> rig.admin().getKVListByNamespace(space)).getTable().size());
        rig.ask(() -> {
            rig.admin().deleteKvConfig(space, "key");
            return true;
        });
        return Check.fails("", () -> rig.admin().getKVConfig(space, "key"));
    }

    private static Object nameServerConfig(Rig rig) throws Exception {
        var servers = rig.admin().getNameServerAddressList();
        var configs = rig.ask(() -> rig.admin().getNameServerConfig(servers));
        Check.equal("servers", servers.size(), configs.size());
        return configs.values().iterator().next().size() + " settings";
    }

    private static Object cleanUps(Rig rig) throws Exception {
        String address = master(rig);
        Check.that(rig.ask(() -> rig.admin().cleanExpiredConsumerQueueByAddr(address)), "queues");
        Check.that(rig.ask(() -> rig.admin().cleanUnusedTopicByAddr(address)), "topics");
        Check.that(rig.ask(() -> rig.admin().deleteExpiredCommitLogByAddr(address)), "log");
        return "queues, topics, log";
    }

    private static Object offline(Rig rig) throws Exception {
        String group = rig.unique("g");
        createGroup(rig, group);
        String topic = rig.topic();
        String told = Check.fails("", () -> rig.admin().examineConsumerConnectionInfo(group));
        Check.fails("", () -> rig.admin().getConsumerRunningInfo(group, "nobody", false));
        Check.fails("", () -> rig.admin().examineProducerConnectionInfo(rig.unique("p"), topic));
        return told;
    }

    private static Object track(Rig rig) throws Exception {
        String topic = rig.topic();
        String group = rig.unique("g");
        Seen seen = rig.consume(group, topic, "*");
        rig.midpoint(); // the tool asks only the master that stored the message
        rig.send(Rig.message(topic, "A", "tracked"));
        rig.awaitSeen(Rig.PATIENCE_SECONDS, seen, List.of("tracked"));
        rig.await(40, "CONSUMED", () -> {
            var tracks = rig.ask(() -> rig.admin().messageTrackDetail(seen.message("tracked")));
            return tracks.stream().anyMatch(each -> each.getConsumerGroup().equals(group)
                    && String.valueOf(each.getTrackType()).equals("CONSUMED"));
        });
        return "CONSUMED";
    }
}
