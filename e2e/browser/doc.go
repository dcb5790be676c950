// Package browser opens the pages of "netdra report" in Chromium and asks it, by its debugging protocol, what a reader
// gets: on a desk and on a telephone, light and dark, with a keyboard only, and through a screen reader.
//
// The rule of this package: pages are the golden files of the packages that write them, so no cluster is needed, and
// they are looked at as they are. The script that measures (audit.js) changes nothing in them.
package browser
