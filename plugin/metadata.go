package plugin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	metadatav1alpha1 "k8s.io/dynamic-resource-allocation/api/metadata/v1alpha1"
	metadatav1beta1 "k8s.io/dynamic-resource-allocation/api/metadata/v1beta1"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/klog/v2"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/dra-networking/dra-network-driver/cnichain/executor"
	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
	"github.com/dra-networking/dra-network-driver/plugin/internal/attach"
	"github.com/dra-networking/dra-network-driver/plugin/internal/claims"
	"github.com/dra-networking/dra-network-driver/plugin/internal/publish"
	"github.com/dra-networking/dra-network-driver/plugin/nodeapi"
	"github.com/dra-networking/dra-network-driver/policy"
)

// metadataVersions returns, newest first, the API versions in which each file repeats its content. Readers use the
// first version that they support; for example, KubeVirt 1.9 supports only v1alpha1.
func metadataVersions() []schema.GroupVersion {
	return []schema.GroupVersion{metadatav1beta1.SchemeGroupVersion, metadatav1alpha1.SchemeGroupVersion}
}

// metadataFiles makes the kubeletplugin library write files in the same way as the driver. By default, the library
// waits for the disk twice for each file, and each request in a claim has two files, one of which is rewritten during
// RunPodSandbox. The files do not have to be durable, since their content is valid only during the current boot: after
// a reboot, the kubelet prepares all claims again, which rewrites all files.
func metadataFiles() kubeletplugin.MetadataFileOperations {
	return kubeletplugin.MetadataFileOperations{
		ReadFile:  readMetadataHead,
		WriteFile: func(path string, data []byte, _ os.FileMode) error { return nodeapi.WriteFile(path, data) },
	}
}

// readMetadataHead returns the first document of a metadata file without the devices, or all of the file if the version
// of that document is unknown. The library reads a file only when it updates it during RunPodSandbox, and uses only the
// generation and podClaimName. Decoding all attributes would take longer than encoding the new ones.
func readMetadataHead(path string) ([]byte, error) {
	data, err := os.ReadFile(path) //nolint:gosec // a path that the library composed
	if err != nil {
		return nil, err
	}
	var head struct {
		metav1.TypeMeta
		metav1.ObjectMeta `json:"metadata"`
		PodClaimName      *string `json:"podClaimName,omitempty"`
	}
	if err := json.NewDecoder(bytes.NewReader(data)).Decode(&head); err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", path, err)
	}
	if !slices.Contains(metadataVersions(), head.GroupVersionKind().GroupVersion()) { // written by a later driver
		return data, nil
	}
	return json.Marshal(head)
}

// metadataOf returns the metadata about a claim's device for the containers that use the claim (KEP-5304): the device's
// attributes and, if the claim belongs to a single pod, the attached interface. A container sees the file in the
// version that existed when the container was created.
func metadataOf(
	record *claims.Record, held *claims.HeldDevice, steps []executor.StepRecord,
) *kubeletplugin.DeviceMetadata {
	persona := held.Persona
	if persona == nil { // a record from an earlier driver version
		persona = &policy.Persona{}
	}
	metadata := &kubeletplugin.DeviceMetadata{Attributes: map[string]resourceapi.DeviceAttribute{}}
	for name, value := range publish.Attributes(&held.Facts, persona) {
		metadata.Attributes[string(name)] = value
	}
	if !record.Shareable {
		metadata.NetworkData = attach.NetworkData(steps, record.Claim.UID, held)
		addVerbs(metadata, attach.VerbsOf(steps, record.Claim.UID, held))
	}
	return metadata
}

// addVerbs adds the addressing information of the RDMA device, including the GID for the pod's interface if there is
// one. It drops attributes that exceed the API's limit.
func addVerbs(metadata *kubeletplugin.DeviceMetadata, verbs *executor.Verbs) {
	if verbs == nil || len(verbs.Devices) == 0 {
		return
	}
	ifName := ""
	if metadata.NetworkData != nil {
		ifName = metadata.NetworkData.InterfaceName
	}
	device, gid, known := attach.PreferredGID(verbs, ifName)
	if !known {
		device, gid, known = attach.PreferredGID(verbs, "")
	}
	if !known {
		device = verbs.Devices[0]
	}
	add := func(name string, value resourceapi.DeviceAttribute) {
		if _, replaced := metadata.Attributes[name]; replaced ||
			len(metadata.Attributes) < resourceapi.ResourceSliceMaxAttributesAndCapacitiesPerDevice {
			metadata.Attributes[name] = value
		}
	}
	text := func(value string) resourceapi.DeviceAttribute {
		return resourceapi.DeviceAttribute{StringValue: &value}
	}
	number := func(value int64) resourceapi.DeviceAttribute { return resourceapi.DeviceAttribute{IntValue: &value} }
	const domain = v1alpha1.DriverName + "/"
	add(string(policy.RDMADevice), text(device.Name)) // the name in the pod
	add(domain+"verbsDevice", text(device.Verbs))
	if known {
		add(domain+"gidIndex", number(int64(gid.Index)))
		add(domain+"gidType", text(gid.Type))
		add(domain+"gid", text(gid.GID))
		add(domain+"rdmaPort", number(int64(gid.Port)))
	}
}

// describe completes the metadata files of newly attached claims. It only logs errors, since incomplete files do not
// prevent containers from starting.
func (d *Driver) describe(ctx context.Context, records []claims.Record) (complete bool) {
	d.mu.Lock()
	helper := d.helper
	d.mu.Unlock()
	if helper == nil {
		return false // not registered yet; the files are still those from the previous driver process
	}
	complete = true
	for i := range records {
		record := &records[i]
		if record.Shareable {
			continue
		}
		byRequest := map[string][]kubeletplugin.Device{}
		for _, device := range d.dra.devices(record) {
			byRequest[device.Requests[0]] = append(byRequest[device.Requests[0]], device)
		}
		for _, request := range slices.Sorted(maps.Keys(byRequest)) {
			err := helper.UpdateRequestMetadata(ctx, record.Claim.Namespace, record.Claim.Name,
				types.UID(record.Claim.UID), request, byRequest[request])
			if err != nil {
				complete = false
				klog.FromContext(ctx).Error(err, "Cannot write the device metadata of a claim", "claim",
					record.Claim.String(), "request", request)
			}
		}
	}
	return complete
}

const repairLimit = 20 * time.Second

// repairMetadata rewrites the CDI specs for the metadata of prepared claims if the specs have been removed: the kubelet
// passes the names of CDI devices to the runtime, which rejects unknown names. repairMetadata also removes the specs of
// unknown claims, which are left over if an earlier driver process released a claim without removing its specs.
func (d *Driver) repairMetadata(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, repairLimit)
	defer cancel()
	var problems []error
	for _, record := range d.Claims.All() {
		if !d.lacksMetadata(&record) {
			continue
		}
		// Pass one claim per call: the library rejects all claims in a call if one of them no longer exists in the API
		// server.
		claim := &drapb.Claim{Namespace: record.Claim.Namespace, Name: record.Claim.Name, Uid: record.Claim.UID}
		// Not in prepareAgain, which also prepares the claims of a lost journal: these have no records.
		d.dra.repairing.Store(claim.Uid, true)
		err := d.again(ctx, []*drapb.Claim{claim})
		d.dra.repairing.Delete(claim.Uid)
		if err != nil {
			problems = append(problems, fmt.Errorf("cannot write the device metadata of claim %s again: %w",
				record.Claim, err))
		}
	}
	orphans, err := d.orphanSpecs()
	if err != nil {
		problems = append(problems, fmt.Errorf("cannot list CDI specs: %w", err))
	}
	for _, file := range orphans {
		if file.Kind != nodeapi.MetadataSpec {
			continue
		}
		if err := d.removeOrphan(ctx, &file); err != nil {
			problems = append(problems, fmt.Errorf("cannot remove the device metadata of a released claim: %w", err))
		}
	}
	return errors.Join(problems...)
}

// lacksMetadata reports whether any of the files that the kubeletplugin library wrote when the claim was prepared is
// missing or damaged. For each request, the library writes a CDI spec and the file that the spec mounts into
// containers.
func (d *Driver) lacksMetadata(record *claims.Record) bool {
	for i := range record.Devices {
		request := resourceclaim.BaseRequestRef(record.Devices[i].Request)
		var spec specs.Spec
		if !readsAsJSON(filepath.Join(d.config.CDIDir, nodeapi.MetadataName(record.Claim.UID, request)), &spec) {
			return true
		}
		for _, device := range spec.Devices {
			for _, mount := range device.ContainerEdits.Mounts {
				if !readsAsJSON(mount.HostPath, &json.RawMessage{}) {
					return true
				}
			}
		}
	}
	return false
}

// readsAsJSON reports whether a file consists of one or more JSON values, and decodes the first value into first. A
// power loss can leave behind an empty file.
func readsAsJSON(path string, first any) bool {
	file, err := os.Open(path)
	if err != nil {
		return false
	}
	defer func() { _ = file.Close() }() // opened for reading only
	decoder := json.NewDecoder(file)
	if err := decoder.Decode(first); err != nil {
		return false
	}
	for err == nil {
		err = decoder.Decode(&json.RawMessage{})
	}
	return errors.Is(err, io.EOF)
}

// prepareAgain calls this driver's Prepare in the same way as the kubelet: Prepare is idempotent, and the library
// rewrites its files.
func (d *Driver) prepareAgain(ctx context.Context, claims []*drapb.Claim) error {
	if len(claims) == 0 || !d.nri.runtime.isConnected() {
		return nil
	}
	connection, err := grpc.NewClient("unix://"+filepath.Join(d.config.PluginDir, draSocket),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer func() { _ = connection.Close() }()
	answer, err := drapb.NewDRAPluginClient(connection).NodePrepareResources(ctx,
		&drapb.NodePrepareResourcesRequest{Claims: claims})
	if err != nil {
		return err
	}
	var problems []error
	for _, uid := range slices.Sorted(maps.Keys(answer.Claims)) {
		if text := answer.Claims[uid].Error; text != "" {
			problems = append(problems, fmt.Errorf("claim %s: %s", uid, text))
		}
	}
	return errors.Join(problems...)
}
