// Command interop drives the Go client of RocketMQ: each case is one thing that it can do.
//
// Arguments: name servers (";" between); how many cases run at once; "faults" or "steady"; the
// names of cases. "list" prints all names; "secured" tries accounts (secured.go). How a case ended is a line of JSON behind "@@"; with
// "faults" they run in batches whose cases meet in their middle, and any line of standard input lets them go
// on.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2/rlog"
)

const middleWait = 100 * time.Second

// A Case fails by an error or by panicking with a failure; it does not apply if it panics with
// skipped.
type Case struct {
	name     string
	deadline time.Duration
	body     func(*Rig) (any, error)
}

type place struct {
	nameServers []string
	run         string
	faults      bool
}

// meeting is where the cases of a batch wait for each other; whoever ends leaves it.
type meeting struct {
	mutex   sync.Mutex
	members int
	waiting int
	open    chan struct{}
	ask     func()
}

func (m *meeting) leave() {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.members--
	m.openIfAllAreThere()
}

func (m *meeting) wait() error {
	m.mutex.Lock()
	m.waiting++
	gate := m.open
	m.openIfAllAreThere()
	m.mutex.Unlock()
	select {
	case <-gate:
		return nil
	case <-time.After(middleWait):
		return fmt.Errorf("the other cases did not come to their middle")
	}
}

func (m *meeting) openIfAllAreThere() {
	if m.waiting > 0 && m.waiting == m.members {
		m.ask()
		close(m.open)
		m.waiting = 0
		m.members = -1 // one midpoint is enough
	}
}

var output sync.Mutex

func tell(value map[string]any) {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	output.Lock()
	defer output.Unlock()
	fmt.Printf("@@%s\n", text)
}

func main() {
	rlog.SetLogLevel("fatal")
	cases := allCases()
	if os.Args[1] == "list" {
		for _, each := range cases {
			fmt.Println(each.name)
		}
		return
	}
	if os.Args[1] == "secured" {
		secured(os.Args[2])
		return
	}
	atOnce, err := strconv.Atoi(os.Args[2])
	if err != nil {
		panic(err)
	}
	where := &place{
		nameServers: strings.Split(os.Args[1], ";"),
		run:         strconv.FormatInt(time.Now().UnixMilli()%100_000_000, 36),
		faults:      os.Args[3] == "faults",
	}
	wanted := map[string]bool{}
	for _, name := range os.Args[4:] {
		wanted[name] = true
	}
	var chosen []Case
	for _, each := range cases {
		if len(wanted) == 0 || wanted[each.name] {
			chosen = append(chosen, each)
		}
	}
	if !where.faults {
		runSteadily(where, chosen, atOnce)
		return
	}
	input := bufio.NewReader(os.Stdin)
	for len(chosen) > 0 {
		count := min(atOnce, len(chosen))
		runBatch(where, chosen[:count], input)
		chosen = chosen[count:]
	}
}

// runSteadily begins one where another has ended.
func runSteadily(where *place, cases []Case, atOnce int) {
	var ended sync.WaitGroup
	places := make(chan struct{}, atOnce)
	for _, each := range cases {
		places <- struct{}{}
		ended.Add(1)
		go func(one Case) {
			defer ended.Done()
			runWithDeadline(where, one, &meeting{})
			<-places
		}(each)
	}
	ended.Wait()
}

func runBatch(where *place, cases []Case, input *bufio.Reader) {
	middle := &meeting{members: len(cases), open: make(chan struct{}), ask: func() {
		tell(map[string]any{"event": "midpoint"})
		if _, err := input.ReadString('\n'); err != nil {
			panic(err)
		}
	}}
	var ended sync.WaitGroup
	for _, each := range cases {
		ended.Add(1)
		go func(one Case) {
			defer ended.Done()
			runWithDeadline(where, one, middle)
		}(each)
	}
	ended.Wait()
}

func runWithDeadline(where *place, one Case, middle *meeting) {
	began := time.Now()
	result := make(chan [2]string, 1)
	go func() { result <- runOne(where, one, middle) }()
	deadline := one.deadline
	if where.faults {
		deadline += 90 * time.Second
	}
	told := [2]string{"fail", fmt.Sprintf("no end within %s", deadline)}
	select {
	case told = <-result:
	case <-time.After(deadline):
	}
	middle.leave()
	tell(map[string]any{
		"case": one.name, "outcome": told[0], "took_ms": time.Since(began).Milliseconds(),
		"detail": told[1],
	})
}

func runOne(where *place, one Case, middle *meeting) (told [2]string) {
	rig := &Rig{place: where, name: one.name, middle: middle}
	defer func() {
		if thrown := recover(); thrown != nil {
			if why, ok := thrown.(skipped); ok {
				told = [2]string{"skip", why.text}
			} else if failed, ok := thrown.(failure); ok {
				told = [2]string{"fail", failed.text}
			} else {
				told = [2]string{"fail", fmt.Sprintf("%v %s", thrown, debug.Stack())}
			}
		}
		rig.close()
	}()
	detail, err := one.body(rig)
	if err != nil {
		return [2]string{"fail", err.Error()}
	}
	return [2]string{"pass", fmt.Sprint(detail)}
}
