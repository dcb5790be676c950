package report

import (
	"context"
	"time"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/doctor"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/nodeclient"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/remote"
)

// answer is a node's contribution to the page for a cluster.
type answer struct {
	devices  []nodeclient.Device
	findings []doctor.Finding
}

// Cluster returns a page that covers all nodes in a cluster. It shows problems and, for each node, the free devices and
// the users of all other devices. Unreachable nodes are listed as problems. now is the time shown on the page, but the
// nodes may have answered a few minutes apart.
func Cluster(ctx context.Context, cluster *remote.Cluster, now time.Time) ([]byte, error) {
	answers, err := remote.Each(ctx, cluster, func(ctx context.Context, node string) (a answer, err error) {
		if err = cluster.Decode(ctx, node, &a.devices, "devices", "--output=json"); err == nil {
			err = cluster.Decode(ctx, node, &a.findings, "doctor", "--output=json")
		}
		return a, err
	})
	if err != nil {
		return nil, err
	}
	return clusterPage(answers, now).write()
}

func clusterPage(answers []remote.Of[answer], now time.Time) page {
	p := page{Time: timeText(now)}
	for i := range answers {
		n := node{Name: answers[i].Node, Devices: answers[i].Answer.devices}
		findings := answers[i].Answer.findings
		if err := answers[i].Err; err != nil {
			n.Failure = err.Error()
			findings = append(findings, doctor.Finding{Level: doctor.Fail, What: "node unreachable", Why: n.Failure})
		}
		p.add(n, findings)
	}
	return p
}
