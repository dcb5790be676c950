// Package printer writes results: for people with colours and tables, for programs as JSON or YAML.
//
// The rule of this package: text that plugins, links or a cluster supply is cleaned before it reaches a terminal.
//
// Commands choose the form by --output: [Show] is for results with a text of their own, [List] for tables. JSON and
// YAML are the same value, so a script may use either.
package printer
