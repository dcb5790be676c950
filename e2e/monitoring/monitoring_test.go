package monitoring

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"text/template/parse"

	"github.com/VictoriaMetrics/metricsql"
	"sigs.k8s.io/yaml"
)

// measured returns the metrics documented in docs/observing.md, with their labels. A test in package plugin checks that
// the table there matches the driver's metrics.
func measured(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile("../../docs/observing.md")
	if err != nil {
		t.Fatal(err)
	}
	code := regexp.MustCompile("`([a-z_]+)`")
	metrics := map[string][]string{}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(line, "|")
		if len(cells) != 5 || !strings.Contains(cells[1], "`dra_network_") {
			continue
		}
		labels := []string{"instance", "le"}
		for _, match := range code.FindAllStringSubmatch(cells[2], -1) {
			labels = append(labels, match[1])
		}
		for _, match := range code.FindAllStringSubmatch(cells[1], -1) {
			name := match[1]
			metrics[name] = labels
			if strings.HasSuffix(name, "_seconds") { // a histogram
				metrics[name+"_bucket"], metrics[name+"_count"] = labels, labels
			}
		}
	}
	if len(metrics) < 10 {
		t.Fatalf("found only %d metrics in the documentation, want at least 10", len(metrics))
	}
	return metrics
}

// foreign returns the metrics and labels that the chart uses but that other programs provide.
func foreign() map[string][]string {
	return map[string][]string{
		"kube_daemonset_status_number_unavailable":    {"daemonset"},
		"apiserver_admission_webhook_fail_open_count": {"name"},
		"process_resident_memory_bytes":               {"instance"},
	}
}

// checkQuery parses a query and checks that its metrics and labels exist.
func checkQuery(t *testing.T, metrics map[string][]string, query string) {
	t.Helper()
	expression, err := metricsql.Parse(query)
	if err != nil {
		t.Errorf("%s: %v", query, err)
		return
	}
	var known, grouped []string
	metricsql.VisitAll(expression, func(part metricsql.Expr) {
		switch part := part.(type) {
		case *metricsql.MetricExpr:
			known = append(known, checkSelector(t, metrics, query, part)...)
		case *metricsql.AggrFuncExpr:
			grouped = append(grouped, part.Modifier.Args...)
		}
	})
	for _, label := range grouped {
		if !slices.Contains(known, label) {
			t.Errorf("%s groups by %q, which is not a label of any of its metrics", query, label)
		}
	}
	if known == nil {
		t.Errorf("%s uses no metric", query)
	}
}

// checkSelector checks the name and the labels of one metric in a query, and returns the labels that the metric has.
func checkSelector(t *testing.T, metrics map[string][]string, query string, selector *metricsql.MetricExpr) []string {
	t.Helper()
	var name string
	var used []string
	for _, filter := range slices.Concat(selector.LabelFilterss...) {
		if filter.Label == "__name__" {
			name = filter.Value
		} else {
			used = append(used, filter.Label)
		}
	}
	labels, ok := metrics[name]
	if !ok {
		labels, ok = foreign()[name]
	}
	if !ok {
		t.Errorf("%s: the metric %q does not exist", query, name)
	}
	for _, label := range used {
		if !slices.Contains(labels, label) {
			t.Errorf("%s: %s has no label %q", query, name, label)
		}
	}
	return labels
}

func TestAlerts(t *testing.T) {
	data, err := os.ReadFile("../../deploy/chart/monitoring/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	// The Prometheus rule file format.
	var file struct {
		Groups []struct {
			Name  string `json:"name"`
			Rules []struct {
				Alert       string            `json:"alert"`
				Expr        string            `json:"expr"`
				For         string            `json:"for"`
				Labels      map[string]string `json:"labels"`
				Annotations map[string]string `json:"annotations"`
			} `json:"rules"`
		} `json:"groups"`
	}
	if err := yaml.UnmarshalStrict(data, &file); err != nil {
		t.Fatal(err)
	}
	metrics := measured(t)
	seen := map[string]bool{}
	for _, group := range file.Groups {
		for _, rule := range group.Rules {
			t.Run(rule.Alert, func(t *testing.T) {
				if seen[rule.Alert] || !strings.HasPrefix(rule.Alert, "DRANetwork") {
					t.Error("the name is not unique or lacks the prefix DRANetwork")
				}
				seen[rule.Alert] = true
				checkQuery(t, metrics, rule.Expr)
				if !slices.Contains([]string{"critical", "warning", "info"}, rule.Labels["severity"]) {
					t.Errorf("severity = %q, want critical, warning or info", rule.Labels["severity"])
				}
				for _, name := range []string{"summary", "description"} {
					text := rule.Annotations[name]
					tree := parse.New(name)
					tree.Mode = parse.SkipFuncCheck
					if _, err := tree.Parse("{{$value := 0}}{{$labels := 0}}"+text, "", "",
						map[string]*parse.Tree{}); err != nil || text == "" {
						t.Errorf("%s %q: %v", name, text, err)
					}
				}
			})
		}
	}
	if len(seen) < 5 {
		t.Errorf("found only %d alerts, want at least 5", len(seen))
	}
}

func TestDashboard(t *testing.T) {
	data, err := os.ReadFile("../../deploy/chart/monitoring/dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Panels []struct {
			ID          int
			Title       string
			Description string
			GridPos     struct{ X, Y, W, H int }
			Targets     []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(data, &dashboard); err != nil {
		t.Fatal(err)
	}
	metrics := measured(t)
	taken := map[[2]int]string{} // occupied positions in the grid, which is 24 columns wide
	for _, panel := range dashboard.Panels {
		t.Run(panel.Title, func(t *testing.T) {
			if panel.Title == "" || panel.Description == "" || len(panel.Targets) == 0 {
				t.Error("the panel lacks a title, a description or a query")
			}
			for _, target := range panel.Targets {
				checkQuery(t, metrics, strings.ReplaceAll(target.Expr, "$__rate_interval", "5m"))
			}
			for x := panel.GridPos.X; x < panel.GridPos.X+panel.GridPos.W; x++ {
				for y := panel.GridPos.Y; y < panel.GridPos.Y+panel.GridPos.H; y++ {
					if other, ok := taken[[2]int{x, y}]; ok || x >= 24 {
						t.Fatalf("the panel overlaps %q or is outside the grid", other)
					}
					taken[[2]int{x, y}] = panel.Title
				}
			}
		})
	}
	if len(dashboard.Panels) < 10 {
		t.Errorf("the dashboard has only %d panels, want at least 10", len(dashboard.Panels))
	}
}
