package doctor

// Level is how bad a finding is.
type Level string

const (
	// OK is said by a check that has found nothing.
	OK Level = "ok"
	// Unknown is said by a check that could not look.
	Unknown Level = "unknown"
	// Warn is a risk, or what only some pods notice.
	Warn Level = "warn"
	// Fail keeps pods from their interfaces, or devices from pods.
	Fail Level = "fail"
)

// Finding is the outcome of a check, or one of its outcomes.
type Finding struct {
	Level Level  `json:"level"`
	Group string `json:"group"`
	Check string `json:"check"`
	// What is one line. The other fields are empty for OK; Unknown only has Why.
	What  string `json:"what"`
	Where string `json:"where,omitempty"`
	Why   string `json:"why,omitempty"`
	Do    string `json:"do,omitempty"`
	// Source is where a known fault of another program is described.
	Source string `json:"source,omitempty"`
}

// check is one question. inspect is pure. It is called only if needs has found nothing missing, so it may use what
// needs has looked at without looking for nil.
type check struct {
	group, name string
	// fine is the text without a finding.
	fine string
	// needs returns the missing data that prevents the check; empty if none is missing. Nil: the check can always run.
	needs   func(*Input) string
	inspect func(*Input) []Finding
}

// Groups in the order of display.
const (
	groupDriver  = "Driver"
	groupRuntime = "Container runtime"
	groupPaths   = "Paths and disks"
	groupCluster = "Cluster"
	groupDevices = "Devices"
	groupObjects = "Policies and topologies"
	groupLeft    = "Pods and what they left"
)

// Examine runs every check. Findings are in the order of the checks; each check has one at least.
func Examine(input *Input) []Finding {
	var all []Finding
	for _, c := range checks() {
		all = append(all, c.findings(input)...)
	}
	return all
}

// findings gives each finding its group and name, so that checks need not repeat them. What cannot be looked at is
// Unknown and never OK: a user would take it for healthy.
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

// Count describes how many findings have a level.
func Count(findings []Finding, level Level) int {
	n := 0
	for i := range findings {
		if findings[i].Level == level {
			n++
		}
	}
	return n
}

// checks are all that there are, grouped.
func checks() []check {
	var all []check
	for _, some := range [][]check{driverChecks(), runtimeChecks(), pathChecks(), clusterChecks(), deviceChecks(),
		objectChecks(), leftoverChecks()} {
		all = append(all, some...)
	}
	return all
}

// needsDriver is for checks of what only the driver knows: it returns why they cannot run, empty if they can.
func needsDriver(input *Input) string {
	if input.Driver == nil {
		return "the driver does not answer"
	}
	return ""
}

// needsCaches is for data that the driver reads from the API server.
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
		return "no containerd runs here"
	case input.Containerd.Problem != "":
		return input.Containerd.Problem
	}
	return ""
}

func needsCluster(input *Input) string {
	if input.Cluster == nil {
		return "give --kubeconfig"
	}
	return ""
}

// needsAnswers is for what only an API server that can be asked knows.
func needsAnswers(input *Input) string {
	if missing := needsCluster(input); missing != "" {
		return missing
	}
	if input.Cluster.Problem != "" {
		return "the API server cannot be asked"
	}
	return ""
}
