package ovnkube

import (
	"context"
	"errors"
	"fmt"
	"strings"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// podRequest is an ADD or DEL request. namespace, pod and uid are taken from CNI_ARGS; uid is empty if the runtime does
// not set it.
type podRequest struct {
	namespace, pod, uid string
	sandbox             string
	netns               string
	ifName              string
	conf                *netConf
	key                 string // the NAD key, once known
}

// String returns the prefix for errors.
func (r *podRequest) String() string {
	return fmt.Sprintf("[%s/%s %s network %s NAD %s NAD key %s]", r.namespace, r.pod, r.sandbox, r.conf.Name,
		r.conf.NADName, r.key)
}

// parseRequest parses a request in the same way as the real server. Like the real server, it does not report why a
// configuration is invalid: the message "broken stdin args" does not include the cause.
func parseRequest(request *Request) (*podRequest, error) {
	conf, err := parseConf(request.Config)
	if err != nil {
		return nil, errors.New("broken stdin args")
	}
	r := &podRequest{conf: conf}
	var missing error
	read := func(target *string, values map[string]string, key string) {
		value, found := values[key]
		if !found {
			missing = errors.Join(missing, fmt.Errorf("missing %s", key))
		}
		*target = value
	}
	read(&r.sandbox, request.Env, "CNI_CONTAINERID")
	read(&r.netns, request.Env, "CNI_NETNS")
	if r.ifName = request.Env["CNI_IFNAME"]; r.ifName == "" {
		r.ifName = "eth0"
	}
	args := map[string]string{}
	for _, arg := range strings.Split(request.Env["CNI_ARGS"], ";") {
		key, value, found := strings.Cut(arg, "=")
		if !found || strings.Contains(value, "=") {
			return nil, fmt.Errorf("invalid CNI_ARG '%s'", arg)
		}
		args[strings.TrimSpace(key)] = strings.TrimSpace(value)
	}
	read(&r.namespace, args, "K8S_POD_NAMESPACE")
	read(&r.pod, args, "K8S_POD_NAME")
	r.uid = args["K8S_POD_UID"]
	if missing == nil && (r.namespace == "" || r.pod == "") {
		missing = errors.New("required CNI variable missing")
	}
	return r, missing
}

// add implements ADD. It does not detect that the plugin was killed, so it continues in this case.
func (s *Server) add(ctx context.Context, r *podRequest) (*types100.Result, error) {
	if r.conf.Name == defaultNetwork {
		return nil, errors.New("this double has no default network: the configuration lacks topology")
	}
	pod, err := s.find(ctx, r)
	if err != nil {
		return nil, fmt.Errorf("failed to get pod %s/%s: %w", r.namespace, r.pod, err)
	}
	if r.key, err = nadKey(pod, r.ifName, r.conf.NADName); err != nil {
		return nil, fmt.Errorf("failed to get NAD key for CNI Add request %s: %w", r, err)
	}
	netdev := ""
	if r.conf.DeviceID != "" {
		if netdev, err = s.switching.functionLink(r.conf.DeviceID); err != nil {
			return nil, fmt.Errorf("failed in cmdAdd while getting Netdevice name: %w", err)
		}
	}
	pod, addresses, err := s.waitForAddresses(ctx, r)
	if err != nil {
		return nil, fmt.Errorf("failed to get pod annotation: %w", err)
	}
	switch {
	case r.uid == "":
		r.uid = string(pod.UID)
	case r.uid != string(pod.UID):
		return nil, fmt.Errorf("pod deleted before sandbox ADD operation began. Request Pod UID %s is different from "+
			"the Pod UID (%s) retrieved from the informer/API", r.uid, pod.UID)
	}
	if err := s.switching.checkMapping(r.conf); err != nil {
		return nil, fmt.Errorf("failed bridge mapping validation: %w", err)
	}
	result, err := s.switching.plug(r, addresses, netdev)
	if err != nil {
		return nil, fmt.Errorf("failed to configure pod interface: %w", err)
	}
	return result, nil
}

// find returns the pod. If the pod does not exist yet, find waits up to a second for it.
func (s *Server) find(ctx context.Context, r *podRequest) (*corev1.Pod, error) {
	for attempt := 1; ; attempt++ {
		pod, err := s.client.CoreV1().Pods(r.namespace).Get(ctx, r.pod, metav1.GetOptions{})
		if err == nil {
			return pod, nil
		}
		if !apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("failed to get pod for annotations: %w", err)
		}
		if attempt == 5 {
			return nil, fmt.Errorf("timed out waiting for pod after 1s: %w", err)
		}
		if err := s.pause(ctx); err != nil {
			return nil, err
		}
	}
}

// waitForAddresses waits until the controller has allocated the pod's addresses, up to the request's time limit. It
// rereads the pod each time, so that the UID reveals whether the pod has been replaced by another pod with the same
// name.
func (s *Server) waitForAddresses(ctx context.Context, r *podRequest) (*corev1.Pod, podNetwork, error) {
	for {
		pod, err := s.find(ctx, r)
		if err != nil {
			return nil, podNetwork{}, err
		}
		networks, err := podNetworks(pod)
		if err != nil {
			return nil, podNetwork{}, err
		}
		if addresses, given := networks[r.key]; given {
			return pod, addresses, nil
		}
		if err := s.pause(ctx); err != nil {
			return nil, podNetwork{}, err
		}
	}
}

func (s *Server) pause(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return fmt.Errorf("timed out waiting for annotations: %w", context.Cause(ctx))
	case <-s.clock.After(pollInterval):
		return nil
	}
}

// del implements DEL. While the pod exists, its annotation must contain the interface, as for ADD, so a pod whose
// annotation has been changed cannot be detached. For a deleted pod, del uses the name of the
// NetworkAttachmentDefinition.
func (s *Server) del(ctx context.Context, r *podRequest) error {
	pod, err := s.client.CoreV1().Pods(r.namespace).Get(ctx, r.pod, metav1.GetOptions{})
	switch {
	case err == nil:
		if r.key, err = nadKey(pod, r.ifName, r.conf.NADName); err != nil {
			return err
		}
	case apierrors.IsNotFound(err):
		r.key = r.conf.NADName
	default:
		return fmt.Errorf("failed to get pod %s/%s: %w", r.namespace, r.pod, err)
	}
	return s.switching.unplug(r)
}
