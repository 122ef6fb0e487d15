package main

import (
	"context"
	"fmt"
	"sort"
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

// failure is what a case's claim panics with.
type failure struct{ text string }

// skipped says why a case does not apply.
type skipped struct{ text string }

// skipAsyncSendsWithFaults: where a connection is lost under one, this client goes on after the
// error with an answer that is not there, and its program ends.
func (r *Rig) skipAsyncSendsWithFaults() {
	if r.place.faults {
		panic(skipped{"this client ends its program where a connection is lost under an async send"})
	}
}

func fail(format string, arguments ...any) { panic(failure{fmt.Sprintf(format, arguments...)}) }

func check(holds bool, format string, arguments ...any) {
	if !holds {
		fail(format, arguments...)
	}
}

func must(err error) {
	if err != nil {
		fail("%v", err)
	}
}

var numbers atomic.Int64

// Rig is what a case works with: clients that end with it, names that no other case has.
type Rig struct {
	place   *place
	name    string
	middle  *meeting
	toClose []func()
	sender  rocketmq.Producer
}

func (r *Rig) close() {
	for i := len(r.toClose) - 1; i >= 0; i-- {
		r.toClose[i]()
	}
}

// midpoint is where the leader dies where one is to die.
func (r *Rig) midpoint() {
	if r.place.faults {
		must(r.middle.wait())
	}
}

func (r *Rig) unique(what string) string {
	return fmt.Sprintf("%s_go_%s_%s%d", what, r.name, r.place.run, numbers.Add(1))
}

func (r *Rig) topic(queues int) string {
	name := r.unique("t")
	asked, err := admin.NewAdmin(admin.WithResolver(primitive.NewPassthroughResolver(r.place.nameServers)))
	must(err)
	defer func() { must(asked.Close()) }()
	master := r.master()
	must(asked.CreateTopic(context.Background(), admin.WithTopicCreate(name),
		admin.WithBrokerAddrCreate(master), admin.WithReadQueueNums(queues),
		admin.WithWriteQueueNums(queues)))
	return name
}

// master is found by sending: its offset id holds the address.
func (r *Rig) master() string {
	result, err := r.send(primitive.NewMessage(r.unique("probe"), []byte("x")))
	must(err)
	address, err := addressOf(result.OffsetMsgID)
	must(err)
	return address
}

func addressOf(offsetID string) (string, error) {
	var a, b, c, d, port int
	if _, err := fmt.Sscanf(offsetID[:16], "%02X%02X%02X%02X%08X", &a, &b, &c, &d, &port); err != nil {
		return "", err
	}
	return fmt.Sprintf("%d.%d.%d.%d:%d", a, b, c, d, port), nil
}

func (r *Rig) producer(options ...producer.Option) rocketmq.Producer {
	all := append([]producer.Option{
		producer.WithNameServer(r.place.nameServers),
		producer.WithGroupName(r.unique("p")),
		producer.WithInstanceName(r.unique("i")),
	}, options...)
	made, err := rocketmq.NewProducer(all...)
	must(err)
	must(made.Start())
	r.toClose = append(r.toClose, func() { _ = made.Shutdown() })
	return made
}

func (r *Rig) shared() rocketmq.Producer {
	if r.sender == nil {
		r.sender = r.producer()
	}
	return r.sender
}

// send must succeed; while leaders die the same message is sent again, as an application would.
func (r *Rig) send(messages ...*primitive.Message) (*primitive.SendResult, error) {
	return r.sendBy(r.shared(), messages...)
}

func (r *Rig) sendBy(by rocketmq.Producer, messages ...*primitive.Message) (*primitive.SendResult, error) {
	until := time.Now().Add(60 * time.Second)
	for {
		result, err := by.SendSync(context.Background(), messages...)
		if err == nil && result.Status == primitive.SendOK {
			return result, nil
		}
		if err == nil {
			err = fmt.Errorf("send status %d", result.Status)
		}
		if !r.place.faults || time.Now().After(until) {
			return nil, err
		}
		time.Sleep(200 * time.Millisecond)
	}
}

func message(topic, tag, key string) *primitive.Message {
	return primitive.NewMessage(topic, []byte("body of "+key)).WithTag(tag).WithKeys([]string{key})
}

func (r *Rig) sendAll(topic, tag, prefix string, from, to int) {
	for i := from; i < to; i++ {
		_, err := r.send(message(topic, tag, fmt.Sprint(prefix, i)))
		must(err)
	}
}

// Seen is what one push consumer was given, by the messages' keys.
type Seen struct {
	mutex    sync.Mutex
	counts   map[string]int
	order    []string
	messages map[string]*primitive.MessageExt
	at       map[string]time.Time
	places   map[string]map[string]bool // by the message's id: where it was read
	consumer rocketmq.PushConsumer
}

func newSeen() *Seen {
	return &Seen{counts: map[string]int{}, messages: map[string]*primitive.MessageExt{},
		at: map[string]time.Time{}, places: map[string]map[string]bool{}}
}

func (s *Seen) take(_ context.Context, given ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for _, each := range given {
		key := each.GetKeys()
		if s.counts[key] == 0 {
			s.messages[key] = each
			s.at[key] = time.Now()
		}
		s.counts[key]++
		if s.places[each.MsgId] == nil {
			s.places[each.MsgId] = map[string]bool{}
		}
		s.places[each.MsgId][fmt.Sprint(each.Queue.QueueId, " ", each.QueueOffset)] = true
		s.order = append(s.order, key)
	}
	return consumer.ConsumeSuccess, nil
}

func (s *Seen) size() int {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return len(s.counts)
}

func (s *Seen) readings() []string {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return append([]string(nil), s.order...)
}

func (s *Seen) message(key string) *primitive.MessageExt {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.messages[key]
}

func (s *Seen) repeated() []string {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	var more []string
	for key, times := range s.counts {
		if times > 1 {
			more = append(more, key)
		}
	}
	sort.Strings(more)
	return more
}

// storedTwice are ids of messages that stand at more than one place. Read more than once is less:
// a client that has lost its leader begins again at the last committed offset.
func (s *Seen) storedTwice() []string {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	var twice []string
	for id, places := range s.places {
		if len(places) > 1 {
			twice = append(twice, id)
		}
	}
	return twice
}

func (s *Seen) missing(keys []string) []string {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	var left []string
	for _, key := range keys {
		if s.counts[key] == 0 {
			left = append(left, key)
		}
	}
	return left
}

func keys(prefix string, from, to int) []string {
	var all []string
	for i := from; i < to; i++ {
		all = append(all, fmt.Sprint(prefix, i))
	}
	return all
}

type listener = func(context.Context, ...*primitive.MessageExt) (consumer.ConsumeResult, error)

func (r *Rig) consumer(group, topic string, selector consumer.MessageSelector, taken listener,
	options ...consumer.Option) rocketmq.PushConsumer {
	all := append([]consumer.Option{
		consumer.WithNameServer(r.place.nameServers),
		consumer.WithGroupName(group),
		consumer.WithInstance(r.unique("i")),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
	}, options...)
	made, err := rocketmq.NewPushConsumer(all...)
	must(err)
	must(made.Subscribe(topic, selector, taken))
	must(made.Start())
	r.toClose = append(r.toClose, func() { _ = made.Shutdown() })
	return made
}

func (r *Rig) consume(topic string, selector consumer.MessageSelector, options ...consumer.Option) *Seen {
	seen := newSeen()
	seen.consumer = r.consumer(r.unique("g"), topic, selector, seen.take, options...)
	return seen
}

func tagged(expression string) consumer.MessageSelector {
	return consumer.MessageSelector{Type: consumer.TAG, Expression: expression}
}

// await polls until it holds; what should have happened by then.
func (r *Rig) await(limit time.Duration, what func() string, condition func() bool) {
	if r.place.faults {
		limit += 60 * time.Second
	}
	until := time.Now().Add(limit)
	for !condition() {
		if time.Now().After(until) {
			fail("not within %s: %s", limit, what())
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (r *Rig) awaitSeen(limit time.Duration, seen *Seen, wanted []string) {
	r.await(limit, func() string { return "missing " + strings.Join(seen.missing(wanted), " ") },
		func() bool { return len(seen.missing(wanted)) == 0 })
}
