// Package browser opens the pages of "netdra report" in Chromium and checks, through its debugging protocol, how they
// work for readers: on a desktop and on a phone, light and dark, with only a keyboard, and with a screen reader.
//
// The rule of this package: pages are the golden files of the packages that write them, so no cluster is needed, and
// they are not modified. The script that measures them (audit.js) does not change them.
package browser
