package plugin

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/klog/v2"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/claimspec"
	"github.com/dra-networking/dra-network-driver/cnichain/executor"
	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
	"github.com/dra-networking/dra-network-driver/plugin/internal/claims"
	"github.com/dra-networking/dra-network-driver/plugin/internal/external"
	"github.com/dra-networking/dra-network-driver/plugin/internal/publish"
	"github.com/dra-networking/dra-network-driver/plugin/internal/telemetry"
	"github.com/dra-networking/dra-network-driver/policy"
	policyapi "github.com/dra-networking/dra-network-driver/policy/v1alpha1"
)

// compile builds a claim's record: the claim's consumers, its devices, and the plans for its topologies. It has no side
// effects other than creating events for pods.
func (d *draPlugin) compile(ctx context.Context, claim *resourceapi.ResourceClaim) (claims.Record, error) {
	record := claims.Record{Claim: claimOf(claim), PreparedAt: d.Clock.Now(), Shareable: shareable(claim)}
	devices, err := claimspec.Devices(claim)
	if err == nil {
		err = claimspec.CheckClasses(claim, devices, items[*v1alpha1.NetworkTopology](d.Cluster.topologies))
	}
	if err != nil {
		return record, err
	}
	pods, err := d.addConsumers(ctx, claim, &record, len(devices) > 0)
	if err != nil {
		return record, err
	}
	roots := map[string][]cnichain.RootDevice{}
	functions := map[string][]cnichain.Device{} // by pool
	for i := range devices {
		held, device, err := d.Publisher.Resolve(&devices[i].DeviceRequestAllocationResult)
		if err != nil {
			return record, err
		}
		record.Devices = append(record.Devices, held)
		name := devices[i].Class.NetworkTopologyRef.Name
		roots[name] = append(roots[name], cnichain.RootDevice{
			Step: devices[i].Class.Step, Device: device, Parameters: devices[i].Parameters,
		})
		if held.Facts.PFName != "" {
			functions[held.Pool] = append(functions[held.Pool], device)
		}
	}
	if err := d.takeBandwidth(claim, &record, functions); err != nil {
		return record, err
	}
	for _, name := range claimspec.Topologies(devices) {
		plan, err := d.plan(ctx, &record, name, roots[name])
		if err != nil {
			return record, err
		}
		record.Plans = append(record.Plans, *plan)
	}
	return record, d.checkSelections(ctx, pods, record.Plans)
}

// takeBandwidth adds the bandwidth that a claim consumes from links to the claim's record, and assigns it, by pool, to
// the claim's functions on these links: the first amount is assigned to the first function, and so on, in the order of
// the requests. It returns an error if the number of amounts for a link differs from the number of functions.
func (d *draPlugin) takeBandwidth(
	claim *resourceapi.ResourceClaim, record *claims.Record, functions map[string][]cnichain.Device,
) error {
	taken := map[string]int{}
	results := claimspec.Bandwidths(claim)
	for i := range results {
		held, link, err := d.Publisher.Resolve(&results[i])
		if err != nil {
			return err
		}
		if !held.Persona.IsBandwidth() {
			return fmt.Errorf("cannot take bandwidth of device %s for request %s: it is not the bandwidth of a link; "+
				"make the DeviceClass selector require type %q", held.Name, held.Request, policyapi.TypeBandwidth)
		}
		if amount, ok := link.Attributes["capacity."+policyapi.Bandwidth].(int64); !ok || amount <= 0 {
			return fmt.Errorf("cannot take %d Mbit/s of device %s for request %s: NICs treat it as unlimited; "+
				"request at least 1", amount, held.Name, held.Request)
		}
		record.Devices = append(record.Devices, held)
		if n := taken[held.Pool]; n < len(functions[held.Pool]) {
			publish.GiveBandwidth(&functions[held.Pool][n], &link)
		}
		taken[held.Pool]++
	}
	for i := range results {
		if pool := results[i].Pool; taken[pool] != len(functions[pool]) {
			return fmt.Errorf("cannot assign the bandwidth of device %s to functions: the claim has %d amounts of it "+
				"and %d functions of that link; request one amount for each function, with matchAttribute: %s",
				results[i].Device, taken[pool], len(functions[pool]), policy.PFName)
		}
	}
	return nil
}

// plan compiles a topology for the claim in record. It does not assign addresses that earlier plans in the record use.
func (d *draPlugin) plan(
	ctx context.Context, record *claims.Record, name string, roots []cnichain.RootDevice,
) (*cnichain.Plan, error) {
	topology, err := d.Cluster.topology(name)
	if err != nil {
		return nil, err
	}
	if err := d.checkNamespace(topology, record.Claim.Namespace); err != nil {
		return nil, err
	}
	taken := d.Claims.TakenAddresses()
	cnichain.TakenAddresses(record.Plans, len(record.Consumers), taken)
	blocks, err := d.Cluster.addressBlocks(cnichain.Ranges(topology), taken)
	if err != nil {
		return nil, err
	}
	schemas := d.Cluster.PluginSchemas()
	topology, err = d.define(ctx, topology, schemas, record.Claim.Namespace)
	if err != nil {
		return nil, err
	}
	plugins, err := d.Executor.Probe(ctx, cnichain.Types(topology))
	if err != nil {
		return nil, err
	}
	missing, err := schemas.KernelLacks(cnichain.Types(topology), d.MissingLinkTypes)
	if err != nil { // the kernel may still support the link types
		klog.FromContext(ctx).Error(err, "Cannot query the link types of the kernel; assuming that all are available")
	}
	plan, problems := cnichain.Compile(topology, cnichain.Binding{
		Claim: record.Claim, Node: d.Cluster.nodeName, Schemas: schemas, Plugins: plugins, KernelLacks: missing,
		Devices: roots, Blocks: blocks, Pods: len(record.Consumers),
		Dirs: d.Executor.Dirs, DirsHelp: "set cniPlugins.image or paths.cniBin of the chart",
	})
	if len(problems) > 0 {
		return nil, topologyError(name, problems)
	}
	return plan, external.Check(plan)
}

func topologyError(name string, problems field.ErrorList) error {
	texts := make([]string, len(problems))
	for i, problem := range problems {
		texts[i] = problem.Error()
	}
	return fmt.Errorf("NetworkTopology %s: %s", name, strings.Join(texts, "; "))
}

// checkNamespace returns an error if a topology does not allow claims from the given namespace. It reads the
// namespace's labels only if the topology restricts namespaces.
func (d *draPlugin) checkNamespace(topology *v1alpha1.NetworkTopology, namespace string) error {
	if topology.Spec.AllowedNamespaces == nil {
		return nil
	}
	labels, err := d.Cluster.namespaceLabels(namespace)
	if err != nil {
		return err
	}
	return claimspec.CheckNamespace(topology, namespace, labels)
}

const definitionsPath = "/apis/k8s.cni.cncf.io/v1/namespaces/%s/network-attachment-definitions/%s"

// define copies the current content of NetworkAttachmentDefinitions into a topology. The claim's plan contains this
// copy, so later changes to the definitions apply only to later claims.
func (d *draPlugin) define(
	ctx context.Context, topology *v1alpha1.NetworkTopology, schemas cnichain.Schemas, namespace string,
) (*v1alpha1.NetworkTopology, error) {
	names := cnichain.Definitions(topology, schemas, namespace)
	if len(names) == 0 {
		return topology, nil
	}
	configs := map[string]string{}
	for _, name := range names {
		config, found, err := d.Cluster.definition(ctx, name)
		if err != nil {
			return nil, fmt.Errorf("NetworkTopology %s: %w", topology.Name, err)
		}
		if found {
			configs[name] = config
		}
	}
	defined, problems := cnichain.Define(topology, schemas, namespace, configs)
	if len(problems) > 0 {
		return nil, topologyError(topology.Name, problems)
	}
	return defined, nil
}

// definition returns the configuration from the NetworkAttachmentDefinition with the given namespace/name. found is
// false if the object or its kind does not exist in the cluster.
func (c *cluster) definition(ctx context.Context, name string) (config string, found bool, err error) {
	data, err := c.readDefinition(ctx, name)
	if apierrors.IsNotFound(err) {
		return "", false, nil
	}
	var object struct {
		Spec struct {
			Config string `json:"config"`
		} `json:"spec"`
	}
	if err == nil {
		err = json.Unmarshal(data, &object)
	}
	if err != nil {
		return "", false, fmt.Errorf("cannot read NetworkAttachmentDefinition %s: %w", name, err)
	}
	return object.Spec.Config, true, nil
}

func (c *cluster) getDefinition(ctx context.Context, name string) ([]byte, error) {
	namespace, name, _ := strings.Cut(name, "/")
	return c.client.CoreV1().RESTClient().Get().AbsPath(fmt.Sprintf(definitionsPath, namespace, name)).DoRaw(ctx)
}

// checkSelections rejects a claim if no pod selects the networks that the claim attaches, because the plugin would fail
// or wait for minutes. If several pods use the claim, it is sufficient that one of them selects the networks; an event
// is created for each of the other pods.
func (d *draPlugin) checkSelections(ctx context.Context, pods []*corev1.Pod, plans []cnichain.Plan) error {
	var wanted []cnichain.WantedNetwork
	for i := range plans {
		wanted = append(wanted, plans[i].WantedNetworks()...)
	}
	if len(wanted) == 0 || len(pods) == 0 {
		return nil
	}
	refused := make(map[*corev1.Pod]error, len(pods))
	for _, pod := range pods {
		annotations, err := d.Cluster.annotations(ctx, pod)
		if err != nil {
			return err
		}
		if _, err := cnichain.SelectNetworks(wanted, annotations, pod.Namespace); err != nil {
			refused[pod] = err
		}
	}
	if len(refused) == len(pods) {
		return fmt.Errorf("pod %s/%s: %w", pods[0].Namespace, pods[0].Name, refused[pods[0]])
	}
	for _, pod := range pods {
		if err := refused[pod]; err != nil {
			d.Statuses.WarnPod(executor.Pod{Namespace: pod.Namespace, Name: pod.Name, UID: string(pod.UID)},
				"NetworkNotSelected", telemetry.Shorten(err.Error()))
		}
	}
	return nil
}
