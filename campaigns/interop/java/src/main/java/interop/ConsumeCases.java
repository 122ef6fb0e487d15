package interop;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;

/** Push consumers: modes, order, filters, where they begin. */
final class ConsumeCases {
    private ConsumeCases() {}

    static void addTo(Catalogue all) {
        all.add("push-concurrent", ConsumeCases::concurrent);
        all.add("push-orderly", ConsumeCases::orderly);
        all.add("push-orderly-suspend", ConsumeCases::orderlySuspend);
        all.add("push-orderly-two-members", 120, ConsumeCases::orderlyTwoMembers);
        all.add("push-broadcast", ConsumeCases::broadcast);
        all.add("push-batches", ConsumeCases::batches);
        all.add("push-tags", ConsumeCases::tags);
        all.add("push-tags-held-pull", ConsumeCases::tagsHeld);
        all.add("push-sql", 120, ConsumeCases::sql);
        all.add("push-sql-null-logic", 120, ConsumeCases::sqlNull);
        all.add("push-sql-held-pull", 120, ConsumeCases::sqlHeld);
        all.add("push-sql-invalid", ConsumeCases::sqlInvalid);
        all.add("push-from-first", rig -> from(rig, ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET));
        all.add("push-from-last", rig -> from(rig, ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET));
        all.add("push-from-timestamp", rig -> from(rig, ConsumeFromWhere.CONSUME_FROM_TIMESTAMP));
        all.add("push-resume-after-restart", ConsumeCases::resume);
        all.add("push-two-topics", ConsumeCases::twoTopics);
        all.add("push-suspend", ConsumeCases::suspend);
        all.add("push-unsubscribe", ConsumeCases::unsubscribe);
    }

    private static Object concurrent(Rig rig) throws Exception {
        String topic = rig.topic();
        Seen seen = rig.consume(rig.unique("g"), topic, "*");
        rig.sendAll(topic, "A", "m", 0, 100);
        rig.midpoint();
        rig.sendAll(topic, "A", "m", 100, 200);
        rig.awaitSeen(Rig.PATIENCE_SECONDS, seen, Seen.keys("m", 0, 200));
        if (!rig.faults()) {
            Check.equal("repeated", Map.of(), seen.repeated());
        }
        return "200 read, " + seen.repeated().size() + " repeated";
    }

    private static Seen orderlyConsumer(Rig rig, String group, String topic) throws Exception {
        DefaultMQPushConsumer made = rig.consumer(group);
        made.subscribe(topic, "*");
        Seen seen = new Seen(made);
        made.registerMessageListener(seen.orderly());
        made.start();
        return seen;
    }

    private static Object orderly(Rig rig) throws Exception {
        String topic = rig.topic();
        Seen seen = orderlyConsumer(rig, rig.unique("g"), topic);
        for (int i = 0; i < 60; i++) {
            Message message = Rig.message(topic, "A", "o" + i);
            rig.send(() -> rig.producer().send(message, (q, m, a) -> q.get(1), null));
            if (i == 30) {
                rig.midpoint();
            }
        }
        rig.awaitSeen(60, seen, Seen.keys("o", 0, 60));
        if (!rig.faults()) {
            Check.equal("order", Seen.keys("o", 0, 60), seen.order());
        }
        Check.equal("order of first readings", Seen.keys("o", 0, 60), firsts(seen.order()));
        return "60 in order, " + seen.repeated().size() + " repeated";
    }

    private static List<String> firsts(List<String> order) {
        return order.stream().distinct().toList();
    }

    private static Object orderlySuspend(Rig rig) throws Exception {
        String topic = rig.topic(1);
        DefaultMQPushConsumer made = rig.consumer(rig.unique("g"));
        made.subscribe(topic, "*");
        Seen seen = new Seen(made);
        AtomicInteger refusals = new AtomicInteger(3);
        made.registerMessageListener(
                (MessageListenerOrderly)
                        (given, context) -> {
                            if (given.get(0).getKeys().equals("o2") && refusals.getAndDecrement() > 0) {
                                return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT;
                            }
                            given.forEach(seen::take);
                            return ConsumeOrderlyStatus.SUCCESS;
                        });
        rig.sendAll(topic, "A", "o", 0, 6);
        made.start();
        rig.midpoint();
        rig.awaitSeen(60, seen, Seen.keys("o", 0, 6));
        Check.equal("order", Seen.keys("o", 0, 6), firsts(seen.order()));
        return "three refusals held up the queue";
    }

    private static Object orderlyTwoMembers(Rig rig) throws Exception {
        String topic = rig.topic();
        String group = rig.unique("g");
        List<String> log = new CopyOnWriteArrayList<>();
        Map<Integer, AtomicInteger> inside = new ConcurrentHashMap<>();
        AtomicInteger overlaps = new AtomicInteger();
        for (int member = 0; member < 2; member++) {
            DefaultMQPushConsumer made = rig.consumer(group);
            made.subscribe(topic, "*");
            made.registerMessageListener(
                    (MessageListenerOrderly)
                            (given, context) -> {
                                int queue = given.get(0).getQueueId();
                                AtomicInteger count =
                                        inside.computeIfAbsent(queue, q -> new AtomicInteger());
                                if (count.incrementAndGet() > 1) {
                                    overlaps.incrementAndGet();
                                }
                                given.forEach(each -> log.add(queue + ":" + each.getKeys()));
                                count.decrementAndGet();
                                return ConsumeOrderlyStatus.SUCCESS;
                            });
            made.start();
        }
        for (int i = 0; i < 80; i++) {
            Message message = Rig.message(topic, "A", "o" + i);
            int wanted = i % 4;
            rig.send(() -> rig.producer().send(message, (q, m, a) -> q.get(wanted), null));
            if (i == 40) {
                rig.midpoint();
            }
        }
        rig.await(90, () -> "80 messages, found " + new TreeMap<>(counts(log)).size(),
                () -> counts(log).size() == 80);
        for (int queue = 0; queue < 4; queue++) {
            List<Integer> numbers = new ArrayList<>();
            for (String each : firsts(log)) {
                if (each.startsWith(queue + ":")) {
                    numbers.add(Integer.valueOf(each.substring(3)));
                }
            }
            List<Integer> sorted = new ArrayList<>(numbers);
            Collections.sort(sorted);
            Check.equal("order in queue " + queue, sorted, numbers);
        }
        Check.equal("two members in one queue", 0, overlaps.get());
        return "each of 4 queues in order over two members";
    }

    private static Map<String, Integer> counts(List<String> log) {
        Map<String, Integer> counts = new TreeMap<>();
        log.forEach(each -> counts.merge(each, 1, Integer::sum));
        return counts;
    }

    private static Object broadcast(Rig rig) throws Exception {
        String topic = rig.topic();
        String group = rig.unique("g");
        List<Seen> members = new ArrayList<>();
        for (int i = 0; i < 2; i++) {
            DefaultMQPushConsumer made = rig.consumer(group);
            made.setMessageModel(VersionCases.broadcasting());
            made.subscribe(topic, "*");
            Seen seen = new Seen(made);
            made.registerMessageListener(seen.concurrently());
            made.start();
            members.add(seen);
        }
        rig.sendAll(topic, "A", "b", 0, 20);
        rig.midpoint();
        rig.sendAll(topic, "A", "b", 20, 40);
        for (Seen member : members) {
            rig.awaitSeen(Rig.PATIENCE_SECONDS, member, Seen.keys("b", 0, 40));
        }
        return "each of two members read 40";
    }

    private static Object batches(Rig rig) throws Exception {
        String topic = rig.topic(1);
        rig.sendAll(topic, "A", "m", 0, 64);
        DefaultMQPushConsumer made = rig.consumer(rig.unique("g"));
        made.setConsumeMessageBatchMaxSize(16);
        made.subscribe(topic, "*");
        Seen seen = new Seen(made);
        AtomicInteger largest = new AtomicInteger();
        made.registerMessageListener(
                (MessageListenerConcurrently)
                        (given, context) -> {
                            largest.accumulateAndGet(given.size(), Math::max);
                            given.forEach(seen::take);
                            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
                        });
        made.start();
        rig.midpoint();
        rig.awaitSeen(Rig.PATIENCE_SECONDS, seen, Seen.keys("m", 0, 64));
        Check.equal("largest batch given", 16, largest.get());
        return "batches of up to 16";
    }

    private static Object tags(Rig rig) throws Exception {
        String topic = rig.topic();
        Seen one = rig.consume(rig.unique("g"), topic, "TagA");
        Seen two = rig.consume(rig.unique("g"), topic, "TagB || TagC");
        for (int i = 0; i < 60; i++) {
            rig.send(Rig.message(topic, "Tag" + "ABCD".charAt(i % 4), "t" + i));
            if (i == 30) {
                rig.midpoint();
            }
        }
        rig.send(Rig.message(topic, null, "untagged"));
        rig.await(Rig.PATIENCE_SECONDS, () -> "15 of TagA, found " + one.size(), () -> one.size() == 15);
        rig.await(Rig.PATIENCE_SECONDS, () -> "30 of TagB and TagC, found " + two.size(), () -> two.size() == 30);
        Thread.sleep(500); // what must not come would have come by now
        Check.equal("sizes", "15 30", one.size() + " " + two.size());
        return "15 of 61, and 30";
    }

    private static Object tagsHeld(Rig rig) throws Exception {
        String topic = rig.topic(1);
        Seen seen = rig.consume(rig.unique("g"), topic, "TagA");
        rig.awaitReady(seen, topic, "TagA");
        Thread.sleep(2_000); // so that a pull is held
        rig.midpoint();
        rig.send(Rig.message(topic, "TagB", "other"));
        rig.send(Rig.message(topic, "TagA", "late"));
        long began = System.currentTimeMillis();
        rig.awaitSeen(5, seen, List.of("late"));
        Check.that(!seen.has("other"), "no other tag");
        return System.currentTimeMillis() - began + " ms";
    }

    private static Seen sqlConsumer(Rig rig, String topic, String expression) throws Exception {
        DefaultMQPushConsumer made = rig.consumer(rig.unique("g"));
        made.subscribe(topic, MessageSelector.bySql(expression));
        Seen seen = new Seen(made);
        made.registerMessageListener(seen.concurrently());
        made.start();
        return seen;
    }

    private static Message with(String topic, String key, String... properties) {
        Message message = Rig.message(topic, "TagA", key);
        for (int i = 0; i < properties.length; i += 2) {
            message.putUserProperty(properties[i], properties[i + 1]);
        }
        return message;
    }

    private static Object sql(Rig rig) throws Exception {
        String topic = rig.topic();
        String[] expressions = {
            "a > 3 AND a <= 6",
            "a BETWEEN 2 AND 4",
            "name IN ('n1', 'n7')",
            "name = 'n5' OR a = 6",
            "NOT (a < 5)",
            "name CONTAINS '4'",
            "name STARTSWITH 'n'",
            "a <> 3 AND TAGS = 'TagA'",
            "b = TRUE",
            "d > 2.5",
        };
        int[][] expected = {
            {4, 5, 6}, {2, 3, 4}, {1, 7}, {5, 6}, {5, 6, 7}, {4}, {0, 1, 2, 3, 4, 5, 6, 7},
            {0, 1, 2, 4, 5, 6, 7}, {0, 2, 4, 6}, {3, 4, 5, 6, 7},
        };
        List<Seen> seen = new ArrayList<>();
        for (String expression : expressions) {
            seen.add(sqlConsumer(rig, topic, expression));
        }
        for (int i = 0; i < 8; i++) {
            rig.send(with(topic, "s" + i, "a", "" + i, "name", "n" + i,
                    "b", i % 2 == 0 ? "true" : "false", "d", i + ".0"));
            if (i == 3) {
                rig.midpoint();
            }
        }
        for (int e = 0; e < expressions.length; e++) {
            List<String> keys = new ArrayList<>();
            for (int i : expected[e]) {
                keys.add("s" + i);
            }
            rig.awaitSeen(Rig.PATIENCE_SECONDS, seen.get(e), keys);
        }
        Thread.sleep(500); // what must not come would have come by now
        for (int e = 0; e < expressions.length; e++) {
            Check.equal(expressions[e], expected[e].length, seen.get(e).size());
        }
        return expressions.length + " expressions";
    }

    private static Object sqlNull(Rig rig) throws Exception {
        String topic = rig.topic();
        Seen missing = sqlConsumer(rig, topic, "a IS NULL");
        Seen there = sqlConsumer(rig, topic, "a IS NOT NULL");
        Seen compared = sqlConsumer(rig, topic, "a > 0 OR c = 'x'");
        Seen negated = sqlConsumer(rig, topic, "NOT (a > 100)");
        rig.send(with(topic, "n0", "c", "x"));
        rig.send(with(topic, "n1", "a", "1"));
        rig.midpoint();
        rig.send(with(topic, "n2", "a", "text"));
        rig.send(with(topic, "n3"));
        rig.awaitSeen(Rig.PATIENCE_SECONDS, missing, List.of("n0", "n3"));
        rig.awaitSeen(Rig.PATIENCE_SECONDS, there, List.of("n1", "n2"));
        rig.awaitSeen(Rig.PATIENCE_SECONDS, compared, List.of("n0", "n1"));
        rig.awaitSeen(Rig.PATIENCE_SECONDS, negated, List.of("n1"));
        Thread.sleep(500); // what must not come would have come by now
        Check.equal("sizes", "2 2 2",
                missing.size() + " " + there.size() + " " + compared.size());
        return "NOT over unknown gave " + negated.order();
    }

    private static Object sqlHeld(Rig rig) throws Exception {
        String topic = rig.topic(1);
        Seen seen = sqlConsumer(rig, topic, "a > 5");
        rig.send(with(topic, "ready", "a", "6"));
        rig.awaitSeen(Rig.PATIENCE_SECONDS, seen, List.of("ready"));
        Thread.sleep(2_000); // so that a pull is held
        rig.midpoint();
        rig.send(with(topic, "low", "a", "1"));
        rig.send(with(topic, "high", "a", "9"));
        long began = System.currentTimeMillis();
        rig.awaitSeen(8, seen, List.of("high"));
        Check.that(!seen.has("low"), "what does not match");
        return System.currentTimeMillis() - began + " ms";
    }

    private static Object sqlInvalid(Rig rig) throws Exception {
        String topic = rig.topic();
        return Check.fails("CODE: 23", () -> sqlConsumer(rig, topic, "a > > 3"));
    }

    /** A young topic is read from its beginning, wherever one asks to begin. */
    private static Object from(Rig rig, ConsumeFromWhere where) throws Exception {
        String topic = rig.topic();
        rig.sendAll(topic, "A", "m", 0, 10);
        rig.midpoint();
        DefaultMQPushConsumer made = rig.consumer(rig.unique("g"));
        made.setConsumeFromWhere(where);
        made.subscribe(topic, "*");
        Seen seen = new Seen(made);
        made.registerMessageListener(seen.concurrently());
        made.start();
        rig.awaitSeen(Rig.PATIENCE_SECONDS, seen, Seen.keys("m", 0, 10));
        return "all 10";
    }

    private static Object resume(Rig rig) throws Exception {
        String topic = rig.topic();
        String group = rig.unique("g");
        Seen first = rig.consume(group, topic, "*");
        rig.sendAll(topic, "A", "m", 0, 50);
        rig.awaitSeen(Rig.PATIENCE_SECONDS, first, Seen.keys("m", 0, 50));
        first.consumer().shutdown();
        rig.midpoint();
        rig.sendAll(topic, "A", "m", 50, 60);
        Seen second = rig.consume(group, topic, "*");
        rig.awaitSeen(Rig.PATIENCE_SECONDS, second, Seen.keys("m", 50, 60));
        Thread.sleep(500); // what must not come would have come by now
        Check.equal("read", 10, second.size());
        return "only what was new";
    }

    private static Object twoTopics(Rig rig) throws Exception {
        String one = rig.topic();
        String two = rig.topic();
        DefaultMQPushConsumer made = rig.consumer(rig.unique("g"));
        made.subscribe(one, "A");
        made.subscribe(two, "*");
        Seen seen = new Seen(made);
        made.registerMessageListener(seen.concurrently());
        made.start();
        rig.sendAll(one, "A", "one", 0, 10);
        rig.midpoint();
        rig.sendAll(one, "B", "not", 0, 10);
        rig.sendAll(two, "B", "two", 0, 10);
        rig.awaitSeen(Rig.PATIENCE_SECONDS, seen, Seen.keys("one", 0, 10));
        rig.awaitSeen(Rig.PATIENCE_SECONDS, seen, Seen.keys("two", 0, 10));
        Check.equal("read", 20, seen.size());
        return "10 and 10";
    }

    private static Object suspend(Rig rig) throws Exception {
        String topic = rig.topic();
        Seen seen = rig.consume(rig.unique("g"), topic, "*");
        rig.sendAll(topic, "A", "m", 0, 5);
        rig.awaitSeen(Rig.PATIENCE_SECONDS, seen, Seen.keys("m", 0, 5));
        seen.consumer().suspend();
        Thread.sleep(500); // pulls that were under way end
        rig.midpoint();
        seen.consumer().resume();
        rig.sendAll(topic, "A", "m", 5, 10);
        rig.awaitSeen(Rig.PATIENCE_SECONDS, seen, Seen.keys("m", 5, 10));
        return "went on after its pause";
    }

    private static Object unsubscribe(Rig rig) throws Exception {
        String topic = rig.topic();
        String later = rig.topic();
        Seen seen = rig.consume(rig.unique("g"), topic, "*");
        rig.sendAll(topic, "A", "m", 0, 5);
        rig.awaitSeen(Rig.PATIENCE_SECONDS, seen, Seen.keys("m", 0, 5));
        rig.midpoint();
        seen.consumer().subscribe(later, "*");
        seen.consumer().unsubscribe(topic);
        rig.sendAll(later, "A", "later", 0, 5);
        rig.awaitSeen(50, seen, Seen.keys("later", 0, 5));
        return "a subscription that came later";
    }
}
