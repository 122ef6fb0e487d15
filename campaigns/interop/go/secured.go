package main

import (
	"context"
	"fmt"
	"sort"
	"strings"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

var (
	ofProducer = primitive.Credentials{AccessKey: "producer1", SecretKey: "secret-of-producer"}
	ofConsumer = primitive.Credentials{AccessKey: "consumer1", SecretKey: "secret-of-consumer"}
)

// secured tries clients with accounts; campaigns/interop/security.py knows what is expected.
func secured(nameServer string) {
	servers := []string{nameServer}
	trySend(servers, "good", "orders", ofProducer)
	trySend(servers, "unsigned", "orders", primitive.Credentials{})
	trySend(servers, "wrong-secret", "orders",
		primitive.Credentials{AccessKey: "producer1", SecretKey: "another-secret"})
	trySend(servers, "unknown-account", "orders",
		primitive.Credentials{AccessKey: "nobody01", SecretKey: "another-secret"})
	trySend(servers, "no-permission", "payments", ofProducer)
	tryConsume(servers)
}

func ended(name, how string) { fmt.Printf("@@%s=%s\n", name, strings.ReplaceAll(how, "\n", " ")) }

// trySend names the case in the body, so that nothing that was refused is taken for stored.
func trySend(servers []string, name, topic string, account primitive.Credentials) {
	made, err := rocketmq.NewProducer(producer.WithNameServer(servers), producer.WithGroupName("PG"),
		producer.WithInstanceName(name), producer.WithRetry(0), producer.WithCredentials(account))
	must(err)
	must(made.Start())
	defer func() { _ = made.Shutdown() }()
	result, err := made.SendSync(context.Background(), primitive.NewMessage(topic, []byte(name)))
	switch {
	case err == nil && result.Status == primitive.SendOK:
		ended(name, "SEND_OK")
	case err == nil:
		ended(name, fmt.Sprint("failed status ", result.Status))
	case strings.Contains(err.Error(), "CODE: 16,"), strings.Contains(err.Error(), "AclException"):
		ended(name, "refused "+err.Error())
	default:
		ended(name, "failed "+err.Error())
	}
}

func tryConsume(servers []string) {
	seen := newSeen()
	made, err := rocketmq.NewPushConsumer(consumer.WithNameServer(servers), consumer.WithGroupName("CG"),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
		consumer.WithCredentials(ofConsumer))
	must(err)
	must(made.Subscribe("orders", tagged("*"), seen.takeByBody))
	must(made.Start())
	until := time.Now().Add(wait)
	for seen.size() == 0 && time.Now().Before(until) {
		time.Sleep(20 * time.Millisecond)
	}
	time.Sleep(2 * time.Second) // what must not come would have come by now
	must(made.Shutdown())
	bodies := seen.readings()
	sort.Strings(bodies)
	ended("consumed", strings.Join(bodies, ","))
}

func (s *Seen) takeByBody(_ context.Context, given ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for _, each := range given {
		s.counts[string(each.Body)]++
		s.order = append(s.order, string(each.Body))
	}
	return consumer.ConsumeSuccess, nil
}
