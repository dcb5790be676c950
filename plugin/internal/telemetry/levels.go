package telemetry

// These are the log levels. docs/dev/logging.md defines the rules and describes levels 0 and 2.
const (
	LevelDecisions = 4
	LevelCalls     = 6
)
