# Read by deploy/tour and deploy/operate-check: runs the commands of a page and compares what they print.
#
#   walk FILE [AFTER [BEFORE]]   every fenced sh block of a Markdown file, between two marks if they are given
#   walked NAME                  the result in one line; fails if something failed or nearly nothing ran
#
# In a block:
#   - a line that ends in a backslash goes on in the next one;
#   - "# 404" at the end of a curl command is the status it must get; without one any 2xx will do;
#   - comment lines right after a command are what it must print, "…" standing for anything;
#   - a command with <<'END' has all lines until END for its input;
#   - every command must succeed.
# The caller sets $work to a folder. It may define line_here, which turns $line of the page into one for this machine, and set
# stop_at_failure where later lines make no sense without the earlier ones.

# curl as the reader has it, with the status noted beside what it prints.
curl() { command curl -sS --max-time 10 "$@" -w '%{stderr}status %{http_code}\n' 2>>"$work/curl"; }

fail() {
	failed=$((failed + 1))
	printf 'FAILED: %s\n  %s\n  it printed: %s\n' "$command" "$1" "$out" >&2
	cat "$work/curl" >&2
	[[ -z ${stop_at_failure:-} ]] || exit 1
}

# prints tells whether $out has the pieces of $1 between "…" in this order.
prints() {
	local rest=$out want=$1 piece
	while [[ -n $want ]]; do
		piece=${want%%…*}
		[[ $rest == *"$piece"* ]] || return 1
		rest=${rest#*"$piece"}
		[[ $want == *…* ]] || break
		want=${want#*…}
	done
}

# check runs $command and judges it by $status and $wanted, then forgets all three.
check() {
	[[ -n ${command// /} ]] || return 0
	ran=$((ran + 1))
	: >"$work/curl" && : >"$work/out"
	# In this shell, not a subshell: a tour line may set a variable for the next ones.
	local got code=0
	eval "$command" >"$work/out" || code=$?
	out=$(tr -d '\r' <"$work/out")
	got=$(sed -n 's/^status //p' "$work/curl" | tail -1)
	if [[ -n $got && -n $status && $got != "$status" ]]; then
		fail "status $got instead of $status"
	elif [[ -n $got && -z $status && $got != 2?? ]]; then
		fail "status $got"
	elif [[ $command == *curl* && -z $got ]]; then
		fail "curl did not get an answer"
	elif ((code)); then
		fail "exit code $code"
	elif ! prints "$wanted"; then
		fail "expected: $wanted"
	fi
	command= status= wanted=
}

ran=0 failed=0 command= status= wanted= out=
declare -F line_here >/dev/null || line_here() { :; }

walk() {
	local line end=
	while IFS= read -r line <&3; do
		if [[ -n $end ]]; then
			command+=$'\n'$line
			[[ $line != "$end" ]] || end=
			continue
		fi
		if [[ $line == '# '* && -n $command && $command != *\\ ]]; then
			wanted+=${line#\# }…
			continue
		fi
		[[ $command == *\\ ]] || check
		line_here
		if [[ $line =~ ^(.*[^ ])\ +#\ ([0-9]{3})$ ]]; then
			line=${BASH_REMATCH[1]} status=${BASH_REMATCH[2]}
		fi
		if [[ $command == *\\ ]]; then command=${command%\\}$line; else command=$line; fi
		if [[ $line =~ \<\<\'([A-Z]+)\'$ ]]; then end=${BASH_REMATCH[1]}; fi
	done 3< <(sed -n "/${2:-^}/,/${3:-nothing ends it}/p" "$1" | sed -n '/^```sh$/,/^```$/p' | sed '/^```/d')
	check
}

walked() {
	((ran > 5)) || { echo "$1: only $ran commands found" >&2; return 1; }
	echo "$1: $((ran - failed)) passed, $failed failed"
	((failed == 0))
}
