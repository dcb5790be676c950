package doctor

// Level is the severity of a finding.
type Level string

const (
	// OK is the level of a check without findings.
	OK Level = "ok"
	// Unknown is the level of a check that could not run.
	Unknown Level = "unknown"
	// Warn is a risk, or a fault that only affects some pods.
	Warn Level = "warn"
	// Fail is a fault that prevents pods from getting interfaces or devices.
	Fail Level = "fail"
)

// Finding is the result of a check.
type Finding struct {
	Level Level  `json:"level"`
	Group string `json:"group"`
	Check string `json:"check"`
	// What is a one-line summary. The fields below are empty for OK; Unknown only sets Why.
	What  string `json:"what"`
	Where string `json:"where,omitempty"`
	Why   string `json:"why,omitempty"`
	Do    string `json:"do,omitempty"`
	// Source is a reference for a known bug in another program.
	Source string `json:"source,omitempty"`
}

// check is a single check. inspect is pure. It only runs if needs returns "", so it can rely on the data that needs has
// checked.
type check struct {
	group, name string
	// fine is the text that is shown if there are no findings.
	fine string
	// needs returns a description of the missing data that prevents the check, or "" if nothing is missing. If needs is
	// nil, the check can always run.
	needs   func(*Input) string
	inspect func(*Input) []Finding
}

// Groups in display order.
const (
	groupDriver  = "Driver"
	groupRuntime = "Container runtime"
	groupPaths   = "Paths and disks"
	groupCluster = "Cluster"
	groupDevices = "Devices"
	groupObjects = "Policies and topologies"
	groupLeft    = "Pods and leftovers"
)

// Examine runs every check. Each check returns at least one finding, in the order of the checks.
func Examine(input *Input) []Finding {
	var all []Finding
	for _, c := range checks() {
		all = append(all, c.findings(input)...)
	}
	return all
}

// findings runs the check and sets the group and name of its findings. A check that cannot run returns Unknown, never
// OK, which a user would interpret as healthy.
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

// Count returns the number of findings with a level.
func Count(findings []Finding, level Level) int {
	n := 0
	for i := range findings {
		if findings[i].Level == level {
			n++
		}
	}
	return n
}

// checks returns all checks in the order of their groups.
func checks() []check {
	var all []check
	for _, some := range [][]check{driverChecks(), runtimeChecks(), pathChecks(), clusterChecks(), deviceChecks(),
		objectChecks(), leftoverChecks()} {
		all = append(all, some...)
	}
	return all
}

// needsDriver is for checks that use data from the driver. It returns the reason why they cannot run, or "".
func needsDriver(input *Input) string {
	if input.Driver == nil {
		return "the driver does not answer"
	}
	return ""
}

// needsCaches is for checks that use data that the driver reads from the API server.
func needsCaches(input *Input) string {
	if missing := needsDriver(input); missing != "" {
		return missing
	}
	if !input.Driver.State.Synced {
		return "the driver has not synced with the API server yet"
	}
	return ""
}

func needsContainerd(input *Input) string {
	switch {
	case input.Containerd == nil:
		return "containerd was not found"
	case input.Containerd.Problem != "":
		return input.Containerd.Problem
	}
	return ""
}

func needsCluster(input *Input) string {
	if input.Cluster == nil {
		return "--kubeconfig is not set"
	}
	return ""
}

// needsAnswers is for checks that use data from the API server.
func needsAnswers(input *Input) string {
	if missing := needsCluster(input); missing != "" {
		return missing
	}
	if input.Cluster.Problem != "" {
		return "the API server is unreachable"
	}
	return ""
}
