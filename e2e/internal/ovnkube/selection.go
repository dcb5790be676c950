package ovnkube

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

const (
	// networksAnnotation is the annotation with the networks that a pod's author requests.
	networksAnnotation = "k8s.v1.cni.cncf.io/networks"
	// podNetworksAnnotation is the annotation where the controller writes the pod's addresses, keyed by NAD key.
	podNetworksAnnotation = "k8s.ovn.org/pod-networks"
)

// selection is one network in the networks annotation.
type selection struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
	Interface string `json:"interface"`
}

func (s selection) nad() string { return s.Namespace + "/" + s.Name }

// selections returns the networks that a pod requests, in order, with their interface names in the pod. The Network
// Plumbing Working Group's specification defines two forms of the annotation: a comma-separated list, and JSON.
func selections(pod *corev1.Pod) ([]selection, error) {
	text := pod.Annotations[networksAnnotation]
	if text == "" {
		return nil, nil
	}
	var wanted []selection
	if strings.ContainsAny(text, `[{"`) {
		if err := json.Unmarshal([]byte(text), &wanted); err != nil {
			return nil, fmt.Errorf("failed to parse pod Network Attachment Selection Annotation JSON format: %w", err)
		}
	} else {
		for _, item := range strings.Split(text, ",") {
			var element selection
			item = strings.TrimSpace(item)
			if namespace, name, found := strings.Cut(item, "/"); found {
				element.Namespace, item = namespace, name
			}
			element.Name, element.Interface, _ = strings.Cut(item, "@")
			for _, part := range []string{element.Namespace, element.Name, element.Interface} {
				if part != "" && len(validation.IsDNS1123Label(part)) > 0 {
					return nil, fmt.Errorf("failed to parse: %q did not match comma-delimited format", part)
				}
			}
			wanted = append(wanted, element)
		}
	}
	for i := range wanted {
		if wanted[i].Namespace == "" {
			wanted[i].Namespace = pod.Namespace
		}
		if wanted[i].Interface == "" {
			wanted[i].Interface = "net" + strconv.Itoa(i+1)
		}
	}
	return wanted, nil
}

// nadKey returns the key for a pod's attachment, which is identified by its interface. The key is the name of the
// NetworkAttachmentDefinition, with the suffix "/1" for the pod's second attachment to the same network, and so on. The
// suffix depends only on the order in the annotation, regardless of interface names.
func nadKey(pod *corev1.Pod, ifName, nad string) (string, error) {
	wanted, err := selections(pod)
	if err != nil {
		return "", err
	}
	wanted = slices.DeleteFunc(wanted, func(s selection) bool { return s.nad() != nad })
	for i, element := range wanted {
		if element.Interface == ifName {
			return indexed(nad, i), nil
		}
	}
	return "", fmt.Errorf("failed to find NAD key associated with CNI request for pod %s/%s with ifName %s",
		pod.Namespace, pod.Name, ifName)
}

func indexed(nad string, index int) string {
	if index == 0 {
		return nad
	}
	return nad + "/" + strconv.Itoa(index)
}

// podNetwork is a pod's configuration on one network, as in the real controller's annotation.
type podNetwork struct {
	IPs  []string `json:"ip_addresses"`
	MAC  string   `json:"mac_address"`
	Role string   `json:"role,omitempty"`
}

// podNetworks returns a pod's networks, keyed by NAD key. The result is empty until the controller has written the
// annotation.
func podNetworks(pod *corev1.Pod) (map[string]podNetwork, error) {
	networks := map[string]podNetwork{}
	if text, written := pod.Annotations[podNetworksAnnotation]; written {
		if err := json.Unmarshal([]byte(text), &networks); err != nil {
			return nil, fmt.Errorf("failed to unmarshal ovn pod annotation %q: %w", text, err)
		}
	}
	return networks, nil
}
