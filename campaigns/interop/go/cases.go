package main

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/admin"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

// Clients rebalance every 20 s and send heartbeats every 30.
const wait = 45 * time.Second

func allCases() []Case {
	minute := 90 * time.Second
	return []Case{
		{"send-sync", minute, sendSync},
		{"send-async", minute, sendAsync},
		{"send-oneway", minute, sendOneway},
		{"send-batch", minute, sendBatch},
		{"send-sizes", minute, sendSizes},
		{"send-too-large", minute, sendTooLarge},
		{"send-properties", minute, sendProperties},
		{"send-selector", minute, sendSelector},
		{"transaction-decided", 2 * minute, transactionDecided},
		{"transaction-checked", 3 * minute, transactionChecked},
		{"push-concurrent", minute, pushConcurrent},
		{"push-orderly", 2 * minute, pushOrderly},
		{"push-broadcast", minute, pushBroadcast},
		{"push-tags", minute, pushTags},
		{"push-sql", minute, pushSQL},
		{"push-from-timestamp", minute, pushFromTimestamp},
		{"push-resume-after-restart", 2 * minute, pushResume},
		{"retry", 3 * minute, retry},
		{"retry-then-dead-letter", 3 * minute, deadLetter},
		{"delay-levels", 2 * minute, delayLevels},
		{"rebalance-two-members", 2 * minute, twoMembers},
		{"pull-poll", 2 * minute, pullPoll},
		{"pull-from", 2 * minute, pullFrom},
		{"request-reply", 2 * minute, requestReply},
		{"trace-of-sends", 2 * minute, trace},
		{"namespace", minute, namespace},
		{"admin-topics", minute, adminTopics},
		{"admin-groups", minute, adminGroups},
	}
}

func sendSync(r *Rig) (any, error) {
	topic := r.topic(4)
	seen := r.consume(topic, tagged("*"))
	first, err := r.send(message(topic, "A", "k0"))
	must(err)
	check(first.RegionID == "DefaultRegion" && first.TraceOn, "region %q, trace %t", first.RegionID, first.TraceOn)
	check(first.TransactionID == first.MsgID, "transaction id %q of %q", first.TransactionID, first.MsgID)
	r.sendAll(topic, "A", "k", 1, 10)
	r.midpoint()
	r.sendAll(topic, "A", "k", 10, 20)
	r.awaitSeen(wait, seen, keys("k", 0, 20))
	check(string(seen.message("k7").Body) == "body of k7", "body %q", seen.message("k7").Body)
	check(seen.message("k0").MsgId == first.MsgID, "id %q", seen.message("k0").MsgId)
	return "20 sent and read", nil
}

func sendAsync(r *Rig) (any, error) {
	r.skipAsyncSendsWithFaults()
	topic := r.topic(4)
	seen := r.consume(topic, tagged("*"))
	var good atomic.Int32
	var ended sync.WaitGroup
	for i := range 100 {
		ended.Add(1)
		must(r.shared().SendAsync(context.Background(),
			func(_ context.Context, _ *primitive.SendResult, err error) {
				if err == nil {
					good.Add(1)
				}
				ended.Done()
			}, message(topic, "A", fmt.Sprint("a", i))))
	}
	ended.Wait()
	check(good.Load() == 100, "%d of 100 acknowledged", good.Load())
	r.awaitSeen(wait, seen, keys("a", 0, 100))
	return "100 acknowledged", nil
}

func sendOneway(r *Rig) (any, error) {
	topic := r.topic(4)
	seen := r.consume(topic, tagged("*"))
	for i := range 10 {
		must(r.shared().SendOneWay(context.Background(), message(topic, "A", fmt.Sprint("o", i))))
	}
	r.awaitSeen(wait, seen, keys("o", 0, 10))
	r.midpoint()
	return "10 read", nil
}

func sendBatch(r *Rig) (any, error) {
	topic := r.topic(4)
	seen := r.consume(topic, tagged("*"))
	var batch []*primitive.Message
	for i := range 50 {
		batch = append(batch, message(topic, "B", fmt.Sprint("b", i)))
	}
	r.midpoint()
	_, err := r.send(batch...)
	must(err)
	r.awaitSeen(wait, seen, keys("b", 0, 50))
	return "50", nil
}

func sendSizes(r *Rig) (any, error) {
	topic := r.topic(4)
	seen := r.consume(topic, tagged("*"))
	sizes := []int{1, 4095, 4096, 1 << 20, 4<<20 - 3000}
	for _, size := range sizes {
		body := bytes.Repeat([]byte("abc"), size/3+1)[:size]
		_, err := r.send(primitive.NewMessage(topic, body).WithKeys([]string{fmt.Sprint("s", size)}))
		must(err)
		if size == 4096 {
			r.midpoint()
		}
	}
	for _, size := range sizes {
		key := fmt.Sprint("s", size)
		r.awaitSeen(wait, seen, []string{key})
		body := bytes.Repeat([]byte("abc"), size/3+1)[:size]
		check(bytes.Equal(seen.message(key).Body, body), "other bytes of %s", key)
	}
	return sizes, nil
}

func sendTooLarge(r *Rig) (any, error) {
	topic := r.topic(1)
	body := make([]byte, 5<<20)
	state := uint32(1)
	for i := range body { // noise: what compresses well may be larger
		state = state*1664525 + 1013904223
		body[i] = byte(state >> 24)
	}
	_, err := r.shared().SendSync(context.Background(), primitive.NewMessage(topic, body))
	check(err != nil, "5 MB were taken")
	_, after := r.send(message(topic, "A", "after"))
	must(after)
	return strings.SplitN(err.Error(), "\n", 2)[0], nil
}

func sendProperties(r *Rig) (any, error) {
	topic := r.topic(4)
	seen := r.consume(topic, tagged("*"))
	sent := message(topic, "标签", "unicode")
	sent.WithProperty("naïve", "wert é 中 = ; |")
	_, err := r.send(sent)
	must(err)
	r.midpoint()
	r.awaitSeen(wait, seen, []string{"unicode"})
	read := seen.message("unicode")
	check(read.GetProperty("naïve") == "wert é 中 = ; |", "property %q", read.GetProperty("naïve"))
	check(read.GetTags() == "标签", "tag %q", read.GetTags())
	return "unicode", nil
}

func sendSelector(r *Rig) (any, error) {
	topic := r.topic(4)
	by := r.producer(producer.WithQueueSelector(producer.NewHashQueueSelector()))
	found := map[int]bool{}
	for i := range 8 {
		result, err := r.sendBy(by, message(topic, "A", fmt.Sprint("h", i)).WithShardingKey("same"))
		must(err)
		found[result.MessageQueue.QueueId] = true
		if i == 3 {
			r.midpoint()
		}
	}
	check(len(found) == 1, "one key went to %d queues", len(found))
	return "one queue", nil
}

type decisions struct {
	mutex  sync.Mutex
	checks map[string]int
}

func (d *decisions) ExecuteLocalTransaction(m *primitive.Message) primitive.LocalTransactionState {
	switch m.GetKeys()[0] {
	case 'c':
		return primitive.CommitMessageState
	case 'r':
		return primitive.RollbackMessageState
	}
	return primitive.UnknowState
}

func (d *decisions) CheckLocalTransaction(m *primitive.MessageExt) primitive.LocalTransactionState {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	d.checks[m.GetKeys()]++
	if strings.HasPrefix(m.GetKeys(), "uc") {
		return primitive.CommitMessageState
	}
	return primitive.RollbackMessageState
}

func (d *decisions) count() int {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	return len(d.checks)
}

func (r *Rig) transactions(decides *decisions) rocketmq.TransactionProducer {
	made, err := rocketmq.NewTransactionProducer(decides, producer.WithNameServer(r.place.nameServers),
		producer.WithGroupName(r.unique("p")), producer.WithInstanceName(r.unique("i")))
	must(err)
	must(made.Start())
	r.toClose = append(r.toClose, func() { _ = made.Shutdown() })
	return made
}

func (r *Rig) sendHalf(by rocketmq.TransactionProducer, topic, key string) {
	until := time.Now().Add(time.Minute)
	sent := message(topic, "T", key)
	for {
		result, err := by.SendMessageInTransaction(context.Background(), sent)
		if err == nil && result.Status == primitive.SendOK {
			return
		}
		if err == nil {
			err = fmt.Errorf("send status %d", result.Status)
			sent = message(topic, "T", key) // the client has rolled it back
		}
		if !r.place.faults || time.Now().After(until) {
			must(err)
		}
		time.Sleep(200 * time.Millisecond)
	}
}

func transactionDecided(r *Rig) (any, error) {
	topic := r.topic(4)
	seen := r.consume(topic, tagged("*"))
	by := r.transactions(&decisions{checks: map[string]int{}})
	for i := range 10 {
		r.sendHalf(by, topic, fmt.Sprint("c", i))
		r.sendHalf(by, topic, fmt.Sprint("r", i))
		if i == 5 {
			r.midpoint()
		}
	}
	r.awaitSeen(wait, seen, keys("c", 0, 10))
	time.Sleep(500 * time.Millisecond) // what must not come would have come by now
	check(seen.size() == 10, "%d came", seen.size())
	check(len(seen.storedTwice()) == 0, "stored twice %v", seen.storedTwice())
	check(r.place.faults || len(seen.repeated()) == 0, "repeated %v", seen.repeated())
	return fmt.Sprint("10 committed, 10 rolled back, ", len(seen.repeated()), " repeated"), nil
}

func transactionChecked(r *Rig) (any, error) {
	topic := r.topic(4)
	seen := r.consume(topic, tagged("*"))
	decides := &decisions{checks: map[string]int{}}
	by := r.transactions(decides)
	for i := range 3 {
		r.sendHalf(by, topic, fmt.Sprint("uc", i))
		r.sendHalf(by, topic, fmt.Sprint("ur", i))
	}
	r.midpoint()
	r.awaitSeen(100*time.Second, seen, keys("uc", 0, 3))
	r.await(wait, func() string { return fmt.Sprint(decides.count(), " checked") },
		func() bool { return decides.count() == 6 })
	time.Sleep(500 * time.Millisecond) // what must not come would have come by now
	check(seen.size() == 3, "%d came", seen.size())
	return "3 committed when asked", nil
}

func pushConcurrent(r *Rig) (any, error) {
	topic := r.topic(4)
	seen := r.consume(topic, tagged("*"))
	r.sendAll(topic, "A", "m", 0, 100)
	r.midpoint()
	r.sendAll(topic, "A", "m", 100, 200)
	r.awaitSeen(wait, seen, keys("m", 0, 200))
	return fmt.Sprint("200, ", len(seen.repeated()), " repeated"), nil
}

func pushOrderly(r *Rig) (any, error) {
	topic := r.topic(4)
	by := r.producer(producer.WithQueueSelector(producer.NewHashQueueSelector()))
	seen := r.consume(topic, tagged("*"), consumer.WithConsumerOrder(true))
	for i := range 40 {
		_, err := r.sendBy(by, message(topic, "A", fmt.Sprint("o", i)).WithShardingKey("same"))
		must(err)
		if i == 20 {
			r.midpoint()
		}
	}
	r.awaitSeen(90*time.Second, seen, keys("o", 0, 40))
	next := 0
	for _, key := range seen.readings() {
		if key == fmt.Sprint("o", next) {
			next++
		}
	}
	check(next == 40, "in order up to %d: %v", next, seen.readings())
	return "40 in order", nil
}

func pushBroadcast(r *Rig) (any, error) {
	topic := r.topic(4)
	group := r.unique("g")
	members := []*Seen{newSeen(), newSeen()}
	for _, each := range members {
		r.consumer(group, topic, tagged("*"), each.take, consumer.WithConsumerModel(consumer.BroadCasting))
	}
	r.sendAll(topic, "A", "b", 0, 10)
	r.midpoint()
	r.sendAll(topic, "A", "b", 10, 20)
	for _, each := range members {
		r.awaitSeen(wait, each, keys("b", 0, 20))
	}
	return "each of two read 20", nil
}

func pushTags(r *Rig) (any, error) {
	topic := r.topic(4)
	one := r.consume(topic, tagged("TagA"))
	two := r.consume(topic, tagged("TagB || TagC"))
	for i := range 20 {
		_, err := r.send(message(topic, []string{"TagA", "TagB", "TagC", "TagD"}[i%4], fmt.Sprint("t", i)))
		must(err)
		if i == 10 {
			r.midpoint()
		}
	}
	r.await(wait, func() string { return fmt.Sprint(one.size(), " ", two.size()) },
		func() bool { return one.size() == 5 && two.size() == 10 })
	return "5 and 10 of 20", nil
}

func pushSQL(r *Rig) (any, error) {
	topic := r.topic(4)
	seen := r.consume(topic, consumer.MessageSelector{Type: consumer.SQL92, Expression: "a > 5 AND b = 'x'"})
	for i := range 10 {
		sent := message(topic, "A", fmt.Sprint("s", i))
		sent.WithProperty("a", fmt.Sprint(i))
		sent.WithProperty("b", "x")
		_, err := r.send(sent)
		must(err)
		if i == 7 {
			r.midpoint()
		}
	}
	r.awaitSeen(wait, seen, keys("s", 6, 10))
	time.Sleep(500 * time.Millisecond) // what must not come would have come by now
	check(seen.size() == 4, "%d came", seen.size())
	return "4 of 10", nil
}

func pushFromTimestamp(r *Rig) (any, error) {
	topic := r.topic(4)
	r.sendAll(topic, "A", "m", 0, 10)
	r.midpoint()
	seen := r.consume(topic, tagged("*"), consumer.WithConsumeFromWhere(consumer.ConsumeFromTimestamp),
		consumer.WithConsumeTimestamp(time.Now().Add(-time.Hour).Format("20060102150405")))
	r.awaitSeen(wait, seen, keys("m", 0, 10))
	return "all 10", nil
}

func pushResume(r *Rig) (any, error) {
	topic := r.topic(4)
	group := r.unique("g")
	first, second := newSeen(), newSeen()
	member := r.consumer(group, topic, tagged("*"), first.take)
	r.sendAll(topic, "A", "m", 0, 20)
	r.awaitSeen(wait, first, keys("m", 0, 20))
	must(member.Shutdown())
	r.midpoint()
	r.sendAll(topic, "A", "m", 20, 25)
	r.consumer(group, topic, tagged("*"), second.take)
	r.awaitSeen(90*time.Second, second, keys("m", 20, 25))
	if !r.place.faults {
		check(second.size() == 5, "%d came", second.size())
	}
	return fmt.Sprint(second.size(), " came to the second"), nil
}

func retry(r *Rig) (any, error) {
	topic := r.topic(4)
	var times sync.Map
	r.consumer(r.unique("g"), topic, tagged("*"),
		func(ctx context.Context, given ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
			times.Store(given[0].ReconsumeTimes, given[0].Topic)
			if given[0].ReconsumeTimes == 0 {
				context, _ := primitive.GetConcurrentlyCtx(ctx)
				context.DelayLevelWhenNextConsume = 1
				return consumer.ConsumeRetryLater, nil
			}
			return consumer.ConsumeSuccess, nil
		})
	_, err := r.send(message(topic, "A", "again"))
	must(err)
	reached := func(count int32) func() bool {
		return func() bool { _, found := times.Load(count); return found }
	}
	r.await(wait, func() string { return "a first reading" }, reached(0))
	r.midpoint()
	// The route of the retry topic is looked for every thirty seconds.
	r.await(2*wait, func() string { return "a second reading" }, reached(1))
	return "read twice", nil
}

func deadLetter(r *Rig) (any, error) {
	topic := r.topic(4)
	group := r.unique("g")
	var refused atomic.Int32
	r.consumer(group, topic, tagged("*"),
		func(ctx context.Context, given ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
			refused.Add(1)
			context, _ := primitive.GetConcurrentlyCtx(ctx)
			context.DelayLevelWhenNextConsume = 1
			return consumer.ConsumeRetryLater, nil
		}, consumer.WithMaxReconsumeTimes(1))
	_, err := r.send(message(topic, "A", "dead"))
	must(err)
	r.await(2*wait, func() string { return "two refusals" }, func() bool { return refused.Load() >= 2 })
	r.midpoint()
	time.Sleep(2 * time.Second) // the dead letters' topic is there by then
	letters := r.consume("%DLQ%"+group, tagged("*"))
	r.awaitSeen(90*time.Second, letters, []string{"dead"})
	return fmt.Sprint(refused.Load(), " refusals"), nil
}

func delayLevels(r *Rig) (any, error) {
	topic := r.topic(4)
	seen := r.consume(topic, tagged("*"))
	began := map[int]time.Time{}
	for level := 1; level <= 2; level++ {
		began[level] = time.Now()
		_, err := r.send(message(topic, "A", fmt.Sprint("d", level)).WithDelayTimeLevel(level))
		must(err)
	}
	r.midpoint()
	r.awaitSeen(wait, seen, keys("d", 1, 3))
	var told []string
	for level, seconds := range map[int]int{1: 1, 2: 5} {
		late := seen.at[fmt.Sprint("d", level)].Sub(began[level]) - time.Duration(seconds)*time.Second
		check(late >= 0, "level %d came %s early", level, -late)
		told = append(told, late.String())
	}
	return told, nil
}

func twoMembers(r *Rig) (any, error) {
	topic := r.topic(4)
	group := r.unique("g")
	one, two := newSeen(), newSeen()
	r.consumer(group, topic, tagged("*"), one.take)
	r.consumer(group, topic, tagged("*"), two.take)
	r.midpoint()
	number := 0
	r.await(60*time.Second, func() string { return fmt.Sprint(one.size(), " and ", two.size()) }, func() bool {
		r.sendAll(topic, "A", "m", number, number+4)
		number += 4
		time.Sleep(200 * time.Millisecond)
		return one.size() > 0 && two.size() > 0
	})
	all := keys("m", 0, number)
	r.await(wait, func() string { return fmt.Sprint(one.size(), " and ", two.size(), " of ", number) }, func() bool {
		left := two.missing(one.missing(all))
		return len(left) == 0
	})
	return fmt.Sprint(one.size(), " and ", two.size()), nil
}

func pullPoll(r *Rig) (any, error) {
	topic := r.topic(4)
	r.sendAll(topic, "A", "m", 0, 20)
	made, err := rocketmq.NewPullConsumer(consumer.WithNameServer(r.place.nameServers),
		consumer.WithGroupName(r.unique("g")), consumer.WithInstance(r.unique("i")),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset))
	must(err)
	must(made.Subscribe(topic, tagged("*")))
	must(made.Start())
	r.toClose = append(r.toClose, func() { _ = made.Shutdown() })
	r.midpoint()
	found := map[string]bool{}
	r.await(60*time.Second, func() string { return fmt.Sprint(len(found), " of 20") }, func() bool {
		request, err := made.Poll(context.Background(), time.Second)
		if err != nil {
			return false
		}
		for _, each := range request.GetMsgList() {
			found[each.GetKeys()] = true
		}
		made.ACK(context.Background(), request, consumer.ConsumeSuccess)
		return len(found) == 20
	})
	return "20", nil
}

func pullFrom(r *Rig) (any, error) {
	topic := r.topic(1)
	var broker string
	for i := range 10 {
		result, err := r.send(message(topic, "A", fmt.Sprint("m", i)))
		must(err)
		broker = result.MessageQueue.BrokerName
	}
	made, err := rocketmq.NewPullConsumer(consumer.WithNameServer(r.place.nameServers),
		consumer.WithGroupName(r.unique("g")), consumer.WithInstance(r.unique("i")))
	must(err)
	must(made.Subscribe(topic, tagged("*")))
	must(made.Start())
	r.toClose = append(r.toClose, func() { _ = made.Shutdown() })
	r.midpoint()
	queue := &primitive.MessageQueue{Topic: topic, BrokerName: broker, QueueId: 0}
	r.await(60*time.Second, func() string { return "4 messages from offset 3" }, func() bool {
		result, err := made.PullFrom(context.Background(), queue, 3, 4)
		return err == nil && result.Status == primitive.PullFound && result.NextBeginOffset == 7
	})
	return "3 to 6", nil
}

func requestReply(r *Rig) (any, error) {
	r.skipAsyncSendsWithFaults() // requests are sent so
	topic := r.topic(4)
	answers := r.producer()
	r.consumer(r.unique("g"), topic, tagged("*"),
		func(ctx context.Context, given ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
			for _, each := range given {
				reply, err := consumer.CreateReplyMessage(each, nil)
				if err != nil {
					return consumer.ConsumeRetryLater, err
				}
				reply.Body = []byte("re: " + string(each.Body)) // which CreateReplyMessage loses
				if _, err = answers.SendSync(ctx, reply); err != nil {
					return consumer.ConsumeRetryLater, err
				}
			}
			return consumer.ConsumeSuccess, nil
		})
	asks := r.producer()
	r.midpoint()
	var last error
	r.await(40*time.Second, func() string { return fmt.Sprint("a reply; ", last) }, func() bool {
		reply, err := asks.Request(context.Background(), 10*time.Second, message(topic, "A", "q"))
		last = err
		return err == nil && string(reply.Body) == "re: body of q"
	})
	return "a reply", nil
}

func trace(r *Rig) (any, error) {
	topic := r.topic(4)
	traces := newSeen()
	taken := func(ctx context.Context, given ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		return traces.take(ctx, given...)
	}
	r.consumer(r.unique("g"), "RMQ_SYS_TRACE_TOPIC", tagged("*"), taken)
	by := r.producer(producer.WithTrace(&primitive.TraceConfig{
		GroupName: r.unique("p"), Access: primitive.Local,
		Resolver: primitive.NewPassthroughResolver(r.place.nameServers),
	}))
	result, err := r.sendBy(by, message(topic, "A", "traced"))
	must(err)
	r.midpoint()
	r.await(60*time.Second, func() string { return "a trace of " + result.MsgID }, func() bool {
		for _, key := range traces.readings() {
			text := string(traces.message(key).Body)
			if strings.Contains(text, result.MsgID) && strings.Contains(text, "Pub") {
				return true
			}
		}
		return false
	})
	return "a Pub record", nil
}

func namespace(r *Rig) (any, error) {
	space := "NS" + r.unique("n")
	topic := r.unique("t")
	by := r.producer(producer.WithNamespace(space))
	_, err := r.sendBy(by, message(topic, "A", "inside"))
	must(err)
	seen := r.consume(topic, tagged("*"), consumer.WithNamespace(space))
	r.midpoint()
	r.awaitSeen(40*time.Second, seen, []string{"inside"})
	return space, nil
}

func (r *Rig) admin() admin.Admin {
	made, err := admin.NewAdmin(admin.WithResolver(primitive.NewPassthroughResolver(r.place.nameServers)))
	must(err)
	r.toClose = append(r.toClose, func() { _ = made.Close() })
	return made
}

func adminTopics(r *Rig) (any, error) {
	asked := r.admin()
	topic := r.topic(3)
	_, err := r.send(message(topic, "A", "m"))
	must(err)
	queues, err := asked.FetchPublishMessageQueues(context.Background(), topic)
	must(err)
	check(len(queues) == 3, "%d queues", len(queues))
	all, err := asked.FetchAllTopicList(context.Background())
	must(err)
	check(strings.Contains(strings.Join(all.TopicList, " "), topic), "%s is not listed", topic)
	must(asked.DeleteTopic(context.Background(), admin.WithTopicDelete(topic),
		admin.WithBrokerAddrDelete(r.master()), admin.WithNameSrvAddr(r.place.nameServers)))
	r.await(wait, func() string { return topic + " is gone" }, func() bool {
		all, err := asked.FetchAllTopicList(context.Background())
		return err == nil && !strings.Contains(strings.Join(all.TopicList, " "), topic)
	})
	r.midpoint()
	return "made, listed, deleted", nil
}

func adminGroups(r *Rig) (any, error) {
	topic := r.topic(1)
	group := r.unique("g")
	seen := newSeen()
	r.consumer(group, topic, tagged("*"), seen.take)
	r.sendAll(topic, "A", "m", 0, 1)
	r.awaitSeen(wait, seen, keys("m", 0, 1))
	groups, err := r.admin().GetAllSubscriptionGroup(context.Background(), r.master(), 5*time.Second)
	must(err)
	_, found := groups.SubscriptionGroupTable[group]
	check(found, "%s is not among %d groups", group, len(groups.SubscriptionGroupTable))
	r.midpoint()
	return len(groups.SubscriptionGroupTable), nil
}
