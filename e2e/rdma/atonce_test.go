package rdma

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dra-networking/dra-network-driver/e2e/internal/kubenode"
)

// pairs is the number of pairs of pods that run concurrently. A physical function has seven virtual functions.
const pairs = 3

// If pods start concurrently, their devices sometimes swap numbers. Each pod must open only its own device. Several
// pairs of pods do this concurrently, so that other pods' devices move at the same time, and waits for the kubelet
// overlap. Each pair is started six times, or RDMA_ROUNDS times: fifty rounds take 25 minutes if the processors are
// otherwise idle ("lab vm test --cluster --rdma=exclusive --processors 2 --timeout 40m --env RDMA_ROUNDS=50 ...").
func TestClusterPodsAtOnce(t *testing.T) {
	c := newCluster(t, exclusive)
	c.needsLab()
	count := 2 * pairs
	if asked := os.Getenv("RDMA_ROUNDS"); asked != "" {
		var err error
		count, err = strconv.Atoi(asked)
		c.must(err)
	}
	c.rdmaFunctions(2 * pairs)
	devices := c.machine().devices()
	c.expose()
	rounds := make(chan int, count)
	for round := range count {
		rounds <- round
	}
	close(rounds)
	var group sync.WaitGroup
	var passed, changed atomic.Int32
	for i := range pairs {
		group.Go(func() {
			t.Run(fmt.Sprintf("pair %d", i), func(t *testing.T) {
				p := c.pair(t, i)
				for round := range rounds {
					changed.Add(p.comeAndGo(round))
					passed.Add(1)
				}
			})
		})
	}
	group.Wait()
	c.onMachine(devices...)
	c.until("driver that has forgotten all pods", kubenode.Forgotten)
	if have := int(passed.Load()); have != count {
		t.Errorf("only %d of %d rounds were completed", have, count)
	}
	t.Logf("%d rounds; %d of %d pods had a device whose number had changed", passed.Load(), changed.Load(), 2*count)
}

// pair is two pods that are repeatedly started at the same time, with two devices that are not used by any other pair.
type pair struct {
	*cluster
	template string
	pods     [2]string
	devices  []string
}

// pair returns the pair with the given number, and creates the topology for it. The pair's devices must have been
// created with rdmaFunctions.
func (c *cluster) pair(t *testing.T, number int) *pair {
	p := &pair{cluster: &cluster{bench: &bench{c.With(t)}, Node: c.Part(t, c.Namespace)},
		template: fmt.Sprintf("once%d", number)}
	var indexes []string
	for i := range p.pods {
		index := strconv.Itoa(2*number + i)
		p.pods[i] = "pod" + index
		p.devices = append(p.devices, "rxe"+index)
		indexes = append(indexes, index)
	}
	p.topology(p.template, "netdev", fmt.Sprintf(`%s && device.attributes["dra.networking"].vfIndex in [%s]`,
		ofFunctions, strings.Join(indexes, ", ")), "")
	return p
}

// comeAndGo runs one round, and returns how many devices changed their numbers when they moved into the pods.
func (p *pair) comeAndGo(round int) (changed int32) {
	p.Helper()
	before, start := p.onceHome(), time.Now()
	for _, pod := range p.pods {
		p.apply(p.barePod(pod, p.template, checked))
	}
	p.Ready(p.pods[:]...)
	ready := time.Now()
	places := []*place{p.inside(p.pods[0]), p.inside(p.pods[1])}
	for i, pod := range p.pods {
		devices := places[i].devices()
		if len(devices) != 1 || before[devices[0]] == "" {
			p.Fatalf("round %d: pod %s has the RDMA devices %q, want one of %q", round, pod, devices, p.devices)
		}
		number := p.uverbs(devices[0])
		if number != before[devices[0]] {
			changed++
		}
		if have := p.opened(pod); !slices.Equal(have, []string{p.node(devices[0])}) {
			p.Errorf("round %d: pod %s was able to open %q, want only %s of %s", round, pod, have, number, devices[0])
		}
		if err := places[1-i].open(number); !errors.Is(err, unix.EPERM) {
			p.Errorf("round %d: opening %s of pod %s in the other pod returned %v, want EPERM", round, number, pod, err)
		}
	}
	seen := time.Now()
	p.goes(p.pods[:]...)
	p.onceHome()
	p.Logf("round %d: pods were Ready after %s and inspected after %s; devices were back after %s", round,
		ready.Sub(start).Round(time.Second), seen.Sub(start).Round(time.Second), time.Since(start).Round(time.Second))
	return changed
}

// onceHome waits until the devices have returned to the machine, and returns the names of their character devices.
func (p *pair) onceHome() (numbers map[string]string) {
	p.Helper()
	p.until("RDMA devices on the machine", func(context.Context) error {
		numbers = map[string]string{}
		var problems []error
		onHost := p.machine().devices()
		for _, device := range p.devices {
			if !slices.Contains(onHost, device) {
				problems = append(problems, fmt.Errorf("%s is not among %q", device, onHost))
				continue
			}
			number, err := findUverbs(device) // the kernel creates the character device some time after the RDMA device
			numbers[device] = number
			problems = append(problems, err)
		}
		return errors.Join(problems...)
	})
	return numbers
}

// opened returns the device files that the pod's container has opened. The container runs checked, which opens all of
// its devices.
func (p *pair) opened(pod string) (files []string) {
	p.Helper()
	p.until("devices that pod "+pod+" has opened", func(context.Context) error {
		dir, err := p.Process(pod)
		if err != nil {
			return err
		}
		data, err := os.ReadFile(filepath.Join(dir, "root", openedFile))
		files = strings.Fields(string(data))
		if err == nil && len(files) == 0 {
			err = kubenode.ErrStill // the file is still being written
		}
		return err
	})
	return files
}
