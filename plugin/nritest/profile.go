package nritest

import "github.com/containerd/nri/pkg/api"

// Profile contains the differences between runtimes that matter to the driver.
type Profile struct {
	// Name and Version are sent to plugins.
	Name, Version string
	// PauseProcess is true if a sandbox has a process whose ID is passed to plugins.
	PauseProcess bool
	// NamespacePrefix is the prefix of network namespace paths.
	NamespacePrefix string
	// HostPaths is true if a network namespace path is reported even for a sandbox in the host's network namespace.
	HostPaths bool
	// StalePaths is true if the path to a sandbox's network namespace is still reported after the namespace has been
	// removed.
	StalePaths bool
	// NamespaceEndsFirst is true if a network namespace is removed before the plugins' StopPodSandbox is called rather
	// than after it.
	NamespaceEndsFirst bool
	// HoldsPods is true if no sandbox starts while a plugin is synchronizing (BlockPluginSync). Otherwise, a sandbox
	// that starts in the meantime may be neither listed nor reported.
	HoldsPods bool
	// StopsRejected is true if plugins are called when a sandbox that a plugin has rejected is stopped and removed.
	StopsRejected bool
	// StopsOlderPods is true if plugins are called when a sandbox that is older than the current runtime process is
	// stopped.
	StopsOlderPods bool
	// Unreported contains functions that clear the container fields that are not passed to plugins.
	Unreported []func(*api.Container)
}

// The following functions clear container fields, for use in [Profile.Unreported].
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

// Mute returns the profile of a runtime that resembles CRI-O but does not report the CDI devices, hooks or environment
// variables of containers.
func Mute() Profile {
	mute := CRIO()
	mute.Name = "mute"
	mute.Unreported = append(mute.Unreported, withoutHooks, withoutEnv)
	return mute
}

// Profiles returns the profiles of the supported runtimes.
func Profiles() []Profile { return []Profile{Containerd(), CRIO()} }
