package doctor

// Level is the severity of a finding.
type Level string

const (
	// OK means that the check has no findings.
	OK Level = "ok"
	// Unknown means that the check could not run.
	Unknown Level = "unknown"
	// Warn means a risk, or a fault that affects only some pods.
	Warn Level = "warn"
	// Fail means a fault that prevents pods from getting interfaces or devices.
	Fail Level = "fail"
)

// Finding is the result of a check.
type Finding struct {
	Level Level  `json:"level"`
	Group string `json:"group"`
	Check string `json:"check"`
	// What is a one-line summary. The fields below are empty for OK. For Unknown, only Why is set.
	What  string `json:"what"`
	Where string `json:"where,omitempty"`
	Why   string `json:"why,omitempty"`
	Do    string `json:"do,omitempty"`
	// Source is a reference for a known bug in another program.
	Source string `json:"source,omitempty"`
}

// check is a single check. inspect is a pure function. It is only called if needs returns "", so it can rely on the
// data whose presence needs has checked.
type check struct {
	group, name string
	// fine is the text shown if there are no findings.
	fine string
	// needs describes the missing data that prevents the check from running, or returns "" if nothing is missing. If
	// needs is nil, the check can always run.
	needs   func(*Input) string
	inspect func(*Input) []Finding
}

// Groups in display order.
const (
	groupDriver  = "Driver"
	groupRuntime = "Container runtime"
	groupPaths   = "Paths and disks"
	groupDevices = "Devices"
	groupObjects = "Policies and topologies"
	groupLeft    = "Pods and leftovers"
)

// Examine runs every check and returns the findings in check order, with at least one finding per check.
func Examine(input *Input) []Finding {
	var all []Finding
	for _, c := range checks() {
		all = append(all, c.findings(input)...)
	}
	return all
}

// findings runs the check and sets the group and name of its findings. If the check cannot run, it returns Unknown
// rather than OK, because a user would interpret OK as healthy.
func (c *check) findings(input *Input) []Finding {
	if c.needs != nil {
		if missing := c.needs(input); missing != "" {
			return []Finding{{Level: Unknown, Group: c.group, Check: c.name, What: c.fine, Why: missing}}
		}
	}
	found := c.inspect(input)
	if len(found) == 0 {
		return []Finding{{Level: OK, Group: c.group, Check: c.name, What: c.fine}}
	}
	for i := range found {
		found[i].Group, found[i].Check = c.group, c.name
	}
	return found
}

// Count returns the number of findings with the given level.
func Count(findings []Finding, level Level) int {
	n := 0
	for i := range findings {
		if findings[i].Level == level {
			n++
		}
	}
	return n
}

// checks returns all checks in display order.
func checks() []check {
	return []check{
		{groupDriver, "driver-answers", "the driver is running and answers", nil, checkAnswers},
		{groupDriver, "driver-ready", "the driver is ready: pods with claims can start", needsDriver, checkReady},
		{groupDriver, "node-name", "the driver uses the name of this node", needsCaches, checkNodeName},
		{groupDriver, "journal", "the journal is readable", nil, checkJournal},
		{groupRuntime, "runtime-version", "the versions of the container runtime and the kubelet have no known bugs",
			needsCaches, checkVersions},
		{groupRuntime, "nri-enabled", "NRI is enabled in the container runtime", needsRuntime, checkNRI},
		{groupRuntime, "nri-socket", "the driver and the container runtime use the same NRI socket",
			needsRuntime, checkNRISocket},
		{groupRuntime, "nri-timeout", "the NRI timeout of the container runtime is long enough", needsRuntime,
			checkNRITimeout},
		{groupRuntime, "nri-required", "the driver's own pod can start without the driver",
			needsRuntime, checkRequired},
		{groupRuntime, "cdi", "the container runtime reads the driver's CDI specs", needsRuntime, checkCDI},
		{groupPaths, "kubelet-directory", "the driver uses the kubelet's directory", needsKubelet, checkKubeletDir},
		{groupPaths, "directories", "the driver's directories are writable and have free space", nil, checkDisks},
		{groupPaths, "cni-plugins", "the CNI plugins of all topologies are installed", needsCaches, checkPlugins},
		{groupPaths, "plugin-folders", "the driver's pod mounts the host directories that CNI plugins need",
			needsPod, checkPluginFolders},
		{groupPaths, "link-types", "the kernel supports the link types that CNI plugins need",
			needsLinkTypes, checkLinkTypes},
		{groupDevices, "problems", "the driver reports no problems with devices", needsDriver, checkProblems},
		{groupDevices, "gone-devices", "every device that a claim holds exists", needsDriver, checkGone},
		{groupDevices, "pod-interfaces", "no pod has lost an attached interface", needsDriver, checkInterfaces},
		{groupDevices, "quarantine", "no device is quarantined", needsDriver, checkQuarantine},
		{groupDevices, "other-owners", "no other program manages these devices", needsDriver, checkOwners},
		{groupDevices, "double-owners", "no device is also in the pool of a device plugin",
			needsDriver, checkDoubleOwners},
		{groupDevices, "network-managers", "no network manager configures a device for pods",
			needsDriver, checkManagers},
		{groupDevices, "iommu", "vfio-pci is available, or no topology needs it", needsDriver, checkIOMMU},
		{groupDevices, "rdma", "the RDMA drivers of all published devices are loaded", needsDriver, checkRDMA},
		{groupObjects, "policies", "every policy is accepted", needsCaches, checkPolicies},
		{groupObjects, "topologies", "every topology is accepted and has its DeviceClasses",
			needsCaches, checkTopologies},
		{groupLeft, "cdi-specs", "every CDI spec belongs to a prepared claim", needsDriver, checkCDIFiles},
		{groupLeft, "namespaces", "every pinned network namespace belongs to a pod sandbox", needsDriver, checkPins},
		{groupLeft, "claims", "every prepared claim belongs to a pod on this node", needsDriver, checkClaims},
		{groupLeft, "links", "no link has a temporary name", needsDriver, checkTransitLinks},
		{groupLeft, "attaching", "no pod has a failed attachment", needsDriver, checkAttaching},
	}
}

// needsDriver is the needs function of checks that use data from the driver. It returns the reason why these checks
// cannot run, or "".
func needsDriver(input *Input) string {
	if input.Driver == nil {
		return "the driver does not answer"
	}
	return ""
}

// needsCaches is the needs function of checks that use data that the driver reads from the API server.
func needsCaches(input *Input) string {
	if missing := needsDriver(input); missing != "" {
		return missing
	}
	if !input.Driver.State.Synced {
		return "the driver has not synced with the API server yet"
	}
	return ""
}

func needsRuntime(input *Input) string {
	switch {
	case input.Runtime == nil:
		return "neither containerd nor CRI-O was found"
	case input.Runtime.Problem != "":
		return input.Runtime.Problem
	}
	return ""
}
