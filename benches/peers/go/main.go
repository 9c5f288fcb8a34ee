// Command redsync is a contender of the benchmark `peers`: it does what benches/src/peers/turns.rs says, with redsync.
//
// Usage: redsync URL
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

// order is one block. Task i uses client i % clients and name i % names.
type order struct {
	kind, name                     string
	names, clients, tasks, permits int
	hold, pause, block             time.Duration
	// Pauses until another task has been granted it.
	turns bool
}

// turnstile counts the grants of all tasks.
type turnstile struct {
	sync.Mutex
	grants int
	next   chan struct{}
}

func (t *turnstile) granted() int {
	t.Lock()
	defer t.Unlock()
	t.grants++
	close(t.next)
	t.next = make(chan struct{})
	return t.grants
}

// wait waits until more than that were granted, or for the end.
func (t *turnstile) wait(ctx context.Context, seen int) {
	for {
		t.Lock()
		grants, next := t.grants, t.next
		t.Unlock()
		if grants > seen {
			return
		}
		select {
		case <-next:
		case <-ctx.Done():
			return
		}
	}
}

// told is what a task tells: times in nanoseconds since the epoch, and 0 or when it asked in vain.
type told struct {
	grants [][4]int64
	vain   int64
}

func main() {
	if err := serve(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "redsync:", err)
		os.Exit(1)
	}
}

func serve(args []string) error {
	if len(args) != 1 {
		return errors.New("usage: redsync URL")
	}
	options, err := redis.ParseURL(args[0])
	if err != nil {
		return err
	}
	in := bufio.NewScanner(os.Stdin)
	out := bufio.NewWriter(os.Stdout)
	say := func(words ...any) error {
		fmt.Fprintln(out, words...)
		return out.Flush()
	}
	var clients []*redsync.Redsync
	if err := say("ready", about()); err != nil {
		return err
	}
	for in.Scan() {
		order, err := parse(in.Text())
		if err != nil {
			return err
		}
		for len(clients) < order.clients {
			clients = append(clients, redsync.New(goredis.NewPool(redis.NewClient(options))))
		}
		if err := say("set"); err != nil {
			return err
		}
		in.Scan()
		all, err := run(clients, order)
		if err != nil {
			return err
		}
		if err := say("over"); err != nil {
			return err
		}
		in.Scan()
		for task, told := range all {
			for _, grant := range told.grants {
				fmt.Fprintln(out, grant[0], grant[1], grant[2], grant[3], task)
			}
			if told.vain != 0 {
				fmt.Fprintln(out, told.vain, "- - -", task)
			}
		}
		if err := say("end"); err != nil {
			return err
		}
	}
	return in.Err()
}

func parse(line string) (order, error) {
	var o order
	var hold, block int
	var pause string
	_, err := fmt.Sscan(line, &o.kind, &o.name, &o.names, &o.clients, &o.tasks, &o.permits, &hold, &pause, &block)
	if err != nil {
		return o, fmt.Errorf("no order: %q: %w", line, err)
	}
	if o.kind != "lock" {
		return o, fmt.Errorf("redsync has no %s", o.kind)
	}
	o.hold = time.Duration(hold) * time.Microsecond
	if o.turns = pause == "turns"; !o.turns {
		micros, err := strconv.Atoi(pause)
		if err != nil {
			return o, fmt.Errorf("no order: %q: %w", line, err)
		}
		o.pause = time.Duration(micros) * time.Microsecond
	}
	o.block = time.Duration(block) * time.Millisecond
	return o, nil
}

func run(clients []*redsync.Redsync, o order) ([]told, error) {
	all := make([]told, o.tasks)
	errs := make([]error, o.tasks)
	end := time.Now().Add(o.block)
	ctx, cancel := context.WithDeadline(context.Background(), end)
	defer cancel()
	var tasks sync.WaitGroup
	grants := &turnstile{next: make(chan struct{})}
	for i := range all {
		tasks.Add(1)
		go func() {
			defer tasks.Done()
			// Its defaults: a lease of 8 s, 32 tries, a random pause of 50 to 250 ms between them.
			mutex := clients[i%o.clients].NewMutex(fmt.Sprintf("%s:%d", o.name, i%o.names))
			errs[i] = all[i].turns(ctx, mutex, o, end, grants)
		}()
	}
	tasks.Wait()
	return all, errors.Join(errs...)
}

func (t *told) turns(ctx context.Context, mutex *redsync.Mutex, o order, end time.Time, grants *turnstile) error {
	for time.Now().Before(end) {
		asked := time.Now().UnixNano()
		// After 32 tries it gives up; whoever wants the lock asks again.
		for mutex.LockContext(ctx) != nil {
			if ctx.Err() != nil {
				t.vain = asked
				return nil
			}
		}
		granted := time.Now().UnixNano()
		seen := 0
		if o.turns {
			seen = grants.granted()
		}
		time.Sleep(o.hold)
		releasing := time.Now().UnixNano()
		if ok, err := mutex.Unlock(); !ok {
			return fmt.Errorf("the lock was not held: %w", err)
		}
		t.grants = append(t.grants, [4]int64{asked, granted, releasing, time.Now().UnixNano()})
		if o.turns {
			grants.wait(ctx, seen)
		}
		time.Sleep(o.pause)
	}
	return nil
}

// about names the versions that are compiled in.
func about() string {
	var words []string
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dep := range info.Deps {
			switch dep.Path {
			case "github.com/go-redsync/redsync/v4":
				words = append(words, "redsync "+dep.Version)
			case "github.com/redis/go-redis/v9":
				words = append(words, "go-redis "+dep.Version)
			}
		}
	}
	return strings.Join(append(words, "Go "+strings.TrimPrefix(runtime.Version(), "go")), ", ")
}
