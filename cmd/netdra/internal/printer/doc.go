// Package printer writes results: as tables and colored text for people, or as JSON or YAML for programs.
//
// Invariant: text from plugins, links or a cluster is sanitized before it reaches a terminal.
//
// --output selects the form of a result. [Show] writes results that have their own text form, and [List] writes tables.
// JSON and YAML encode the same value.
package printer
