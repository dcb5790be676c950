package nritest

import "github.com/containerd/nri/pkg/api"

// Profile contains the differences between runtimes that matter to the driver.
type Profile struct {
	// Name and Version are sent to plugins.
	Name, Version string
	// PauseProcess reports whether a sandbox has a process, whose ID is passed to plugins.
	PauseProcess bool
	// NamespacePrefix is the prefix of network namespace paths.
	NamespacePrefix string
	// HostPaths reports whether a sandbox in the host's network has a network namespace path, like all other sandboxes.
	HostPaths bool
	// StalePaths reports whether a sandbox still has the path of its network namespace after the namespace was removed.
	StalePaths bool
	// NamespaceEndsFirst reports whether the network namespace is removed before StopPodSandbox rather than after it.
	NamespaceEndsFirst bool
	// HoldsPods reports whether no sandbox starts while a plugin synchronizes (BlockPluginSync). Otherwise, a sandbox
	// that starts in the meantime may be neither listed nor reported.
	HoldsPods bool
	// StopsRejected reports whether plugins are called when a sandbox that a plugin rejected is stopped and removed.
	StopsRejected bool
	// StopsOlderPods reports whether plugins are called when a sandbox that is older than the runtime's process stops.
	StopsOlderPods bool
	// Unreported are the container fields that are not passed to plugins.
	Unreported []func(*api.Container)
}

// Container fields for [Profile.Unreported].
func withoutCDIDevices(c *api.Container) { c.CDIDevices = nil }
func withoutHooks(c *api.Container)      { c.Hooks = nil }
func withoutEnv(c *api.Container)        { c.Env = nil }

// Containerd returns the profile of containerd 2.4.
func Containerd() Profile {
	return Profile{Name: "containerd", Version: "v2.4.2", PauseProcess: true,
		NamespacePrefix: "/var/run/netns/cni-", HoldsPods: true}
}

// CRIO returns the profile of CRI-O 1.37.
func CRIO() Profile {
	return Profile{Name: "cri-o", Version: "1.37.0", NamespacePrefix: "/var/run/netns/",
		HostPaths: true, StalePaths: true, NamespaceEndsFirst: true, StopsRejected: true, StopsOlderPods: true,
		Unreported: []func(*api.Container){withoutCDIDevices}}
}

// Mute returns the profile of a runtime that resembles CRI-O but reports neither the CDI devices nor the hooks and
// environment of containers.
func Mute() Profile {
	mute := CRIO()
	mute.Name = "mute"
	mute.Unreported = append(mute.Unreported, withoutHooks, withoutEnv)
	return mute
}

// Profiles returns the profiles of the supported runtimes.
func Profiles() []Profile { return []Profile{Containerd(), CRIO()} }
