package plugin

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/dynamic-resource-allocation/api/metadata"
	metadatav1beta1 "k8s.io/dynamic-resource-allocation/api/metadata/v1beta1"
	"k8s.io/dynamic-resource-allocation/devicemetadata"
	"k8s.io/utils/ptr"
)

// The library decodes the returned data with this decoder.
func TestHeadOfMetadata(t *testing.T) {
	file := metadatav1beta1.DeviceMetadata{
		TypeMeta:     metav1.TypeMeta{APIVersion: metadatav1beta1.SchemeGroupVersion.String(), Kind: "DeviceMetadata"},
		ObjectMeta:   metav1.ObjectMeta{Namespace: "apps", Name: "app-net", UID: "1", Generation: 7},
		PodClaimName: ptr.To("net"),
		Requests: []metadatav1beta1.DeviceMetadataRequest{{Name: "nic", Devices: []metadatav1beta1.Device{{
			Driver: "dra.networking", Pool: "p", Name: "d", Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
				"dra.networking/ifName": {StringValue: ptr.To("ens1")},
			},
		}}}},
	}
	data, err := json.MarshalIndent(file, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "metadata.json")
	if err := os.WriteFile(path, append(data, "\n{\"a second\": \"document\"}"...), 0o600); err != nil {
		t.Fatal(err)
	}
	head, err := readMetadataHead(path)
	if err != nil {
		t.Fatal(err)
	}
	var have metadata.DeviceMetadata
	if err := devicemetadata.DecodeMetadataFromStream(json.NewDecoder(bytes.NewReader(head)), &have); err != nil {
		t.Fatalf("the library cannot decode %s: %v", head, err)
	}
	want := metadata.DeviceMetadata{ObjectMeta: file.ObjectMeta, PodClaimName: file.PodClaimName}
	have.TypeMeta = metav1.TypeMeta{}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("head of a metadata file (-want +got):\n%s", diff)
	}
	later := []byte(`{"kind": "DeviceMetadata", "apiVersion": "metadata.resource.k8s.io/v9"}` + string(data))
	if err := os.WriteFile(path, later, 0o600); err != nil {
		t.Fatal(err)
	}
	if head, err := readMetadataHead(path); err != nil || !bytes.Equal(head, later) {
		t.Errorf("head of a file from a later driver = %s, %v; want the whole file", head, err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readMetadataHead(path); err == nil {
		t.Error("an empty file, as after a power loss, was read without an error")
	}
	if _, err := readMetadataHead(path + "-removed"); !os.IsNotExist(err) {
		t.Errorf("the library must recognize that a file does not exist, got %v", err)
	}
}
