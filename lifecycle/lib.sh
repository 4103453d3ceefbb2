# shellcheck shell=bash
# What on_create.sh and every step share. Source it; it runs nothing by itself.

# log LEVEL MESSAGE: to stderr, so that a function may print a value on stdout and log as well.
log() {
	printf '%s %s %s: %s\n' "$(date -u +%FT%TZ)" "$1" "${0##*/}" "$2" >&2
}

# die MESSAGE [EXIT_CODE]: for a failure that was foreseen. The message says what is wrong and what to look at.
die() {
	log ERROR "$1"
	exit "${2:-1}"
}

# report_errors: from here on, a command that fails unforeseen ends the script with its own exit code and one line that
# names the place. Needs `set -Eeuo pipefail`.
report_errors() {
	# A failure inside $( ) reaches the shell around it too; only that one reports, so that there is one line.
	report_level=$BASH_SUBSHELL
	trap 'report_error "$?" "$LINENO" "$BASH_COMMAND"' ERR
}

report_error() {
	((BASH_SUBSHELL > report_level)) || log ERROR "line $2: exit code $1: $3"
	exit "$1"
}
