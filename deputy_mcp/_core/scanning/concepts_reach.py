"""The words of the scanner, second half: what is done, to what, with what and to whom.

A line `name:` begins a concept, indented lines hold its entries, separated by commas. An entry is a word or a phrase.
`(a|b|)` stands for each alternative, a word that ends in `*` for all its forms, `@name` for the entries of an earlier
concept. Words in angle brackets are the shapes that `words` reads. Everything is lower case, without apostrophes.
"""

REACH = """
# What must not leave
file:
  <secret-file>, wallet dat, id rsa, etc (passwd|shadow)
private:
  dump the environment, company secrets, environment secrets, address book, contact list, browsing history, browser
  history, <secret-file>, <secret-name>, credential, credentials, passphrase, password, passwords, cookies, mnemonic,
  ssn, iban, (private|ssh|rsa|aws|encryption|signing|api|admin|secret) (key|keys), environment variables, env vars,
  session (cookie|cookies|token|tokens), seed phrase, recovery phrase, (access|auth|bearer|user|users) (token|tokens),
  (all|any|user|users|local|stored) (secrets|tokens|cookies|passwords), system secrets, private
  (data|notes|information), sensitive (data|files|information|columns|topics), (bank account|account|passport|credit
  card|card) (number|numbers), social security, connection strings, configuration values, phone number,
  (security|verification|one time) code
prompt:
  system (prompt|message|instructions|secrets), chain of thought, original prompt, your settings, (full|entire|exact)
  prompt, (initial|original|hidden|internal|secret|your) (prompt|instructions|configuration|guidelines)
conversation:
  (last|latest|previous|recent) (few|two|three|four|five|ten|10|20) (messages|turns|prompts|questions), open tabs,
  (full|entire|complete) prompt, (earlier|previous|prior|entire)
  (messages|conversation|conversations|chat|chats|turns|prompts|answers), (users|user) (last|latest|previous|original)
  (question|questions|request|input), (entire|complete) previous conversation, previous chat,
  (whole|entire|full|complete|) (conversation|chat|message|session) (history|context|log|transcript), (user|users)
  (last|latest|original|full|) (message|messages|query|prompt|prompts|private notes), (everything|all|what|anything)
  (that|) (the|) user (writes|says|types|has|wrote|said|asked|typed), every message, last message,
  (full|complete|entire|whole) (user|chat|) (context|message|history|conversation|transcript|chat|dialogue),
  keystrokes, keystroke, everything that (the|) user, (complete|full|whole|entire) transcript, (all|earlier) answers,
  each user request, (previous|earlier) tool (results|outputs), (of|from) the conversation, full context
inventory:
  (names|list|descriptions|schemas) of (all|the|every|your|available|other|) (available|other|) (tools|functions),
  tools (available to you|you can use|you have)
machine:
  list of contacts, browsing history, user files, users files, device id, mac address, serial number, device
  identifiers, hostname, user name, username, open files, ip address, process list, workspace path
contents:
  usage data, user activity, (file|workspace|conversation|clipboard|document|project|message) (content|contents),
  contents of (the|all|every|each), private messages, (the|all|any) files, (users|user) (data|files|input|documents)
path:
  <path>, <secret-file>

# Verbs
read:
  read, locate, look for, search, find, look up, open, cat, load, retrieve, fetch, extract, collect, gather, dump,
  obtain, grab, harvest, steal, decrypt, print, reveal, (access|get) (the|all|your|any|<secret-file>)
give:
  passes, passing, send*, sent, post, posts, posted, upload*, forward*, transmit*, exfiltrate*, mail, email, leak*,
  relay*, deliver*, share, submit*, copy, append*, attach*, embed*, include, included, including, provide, supply,
  fill, pass, put, hand over, hand them over, insert*, output, log, list, disclose, populate, sync, write, save,
  shared
repeat:
  reveal, print, output, show, repeat, reproduce, display, disclose, leak, share, recite, send, include, return
send:
  ship, ships, shipped, deposit, deposited, get request to, post request to, (http|web) request to, deliver to, share
  with, shared with, sends, beacon, send*, sent, post, posts, posted, upload*, forward*, transmit*, exfiltrate*, mail,
  mailed, email, emailed, leak*, relay*, deliver*, report, share, submit*, copy, copied, sync, transfer*, bcc, cc,
  curl, wget, route, redirect*, auto shared, go to
deliver:
  notify, send, sent, post, posted, upload, uploaded, forward, forwarded, transmit, transmitted, exfiltrate,
  exfiltrated, mail, mailed, email, emailed, leak, relay, relayed, deliver, delivered, report, share, submit, copy,
  copied, sync, synced, transfer, bcc, cc, curl, wget, route, redirect, go to, ship, shipped, deposit, auto shared,
  beacon
hand_on:
  (pass|hand|give|supply|provide|feed|return|send|store) (its|the|their|this)
  (output|result|results|content|contents|text|response), (its|the) (output|result|content|text|contents) (is|be|must
  be|should be|) passed, pass them, hand its, pass it (on|along), hand it over
tamper:
  edit, append, appended, prepend, prepended, prefix, prefixed, suffix, replace, replaced, change, changed, modify,
  modified, rewrite, rewritten, alter, altered, substitute, substituted, override, redirect, redirected, reroute,
  inject, swap, swapped, bcc, multiply, converted
adjust:
  @tamper, add, added, insert, include, set, put, attach, embed, assign, use, fill, go to, forward, forwarded, copy,
  copied
act:
  @read, @tamper, @adjust, send, upload, store, record, call, run, execute, capture, post, transmit, submit, save,
  write, invoke, delete, perform, share, log, route, create, grant, disable, remove, hijack, deliver, handled, end,
  apply
call:
  call, calls, called, invoke, invoked, use, used, run, execute, executed, trigger, consult, perform
decode:
  decode, decoding, decrypt, deobfuscate
execute:
  execute, run, eval, follow, obey
disable:
  turn off, disable, switch off, deactivate, remove, uninstall, kill
omit:
  omit, leave out, exclude, left out, drop, strip
visit:
  visit, visiting, open, opens, navigate to, go to, click, download
says:
  says, mentions, types, writes, states
grant:
  grant, grants, granted, granting, gives, raised, raise, escalate, escalates, unlock, unlocks, activated, active,
  hereby, obtained, assumes, assume
risk:
  delete, deletes, remove, move, stop, kill, grant, disable, transfer, install, share, shared, clear, drop, overwrite,
  erase, wipe, terminate, shutdown, restart, publish, invite, pay, execute, rename, encrypt, format, unlock, make the,
  switch
contain:
  contain, contains, begin with, start with, end with, starts with, begins with, include, use, be
  (written|executed|replaced|sent|set|prefixed|appended|translated|converted|multiplied|doubled)

# What the orders reach for
through:
  (through|via|with|to|by) this (tool|one|server) instead, (delivered|routed|handled|sent|processed) (through|via|by)
  this (tool|server|one)
place:
  (third|3rd) party (server|analytics|service|host), analytics server, analytics service, (third|other) parties,
  partners, remote endpoint, second location, (remote|external|our|another)
  (location|system|site|backend|collector|account), <url>, <host>, <email>, <account>, webhook, analytics endpoint,
  attacker, collector, (external|remote|our|our own|collection) (server|endpoint|address|service|host)
mailbox:
  <email>, <account>
link:
  <url>, <host>, website
parameter:
  parameter, parameters, argument, arguments, field, fields, <own>, param, metadata, sidenote, note, header
other_tool:
  (any|other|another|all|every|any other|all other|the other|official|subsequent)
  (tool|tools|function|functions|server|servers|calls), all communication tools, tools of this kind, <identifier>,
  <own> tool
named:
  <identifier>, <own> tool, tool is (present|used|called|available|loaded|connected), (other|another) tool
tool:
  tool, tools
outgoing:
  traffic, destination, amount, remote, generated code, email, emails, mail, mails, message, messages, commands,
  command, commit, payment, payments, recipient, recipients, event, events, attendee, issue, issues, query,
  transaction, transactions, communications, url, output, answer, answers, reply, response, responses, invoice,
  address, path
unreliable:
  dangerous, harmful, to be avoided, be avoided, out of service, outdated, unsafe, must not be used, no longer
  (work|works|supported|maintained|available|safe), discontinued, untrusted, malfunctioning, data is wrong, not
  trustworthy, unreliable, compromised, insecure, infected, vulnerable, malicious, these replaces, replaces them,
  replaces all
outside:
  external, remote, third party, outside, off site, offshore, foreign, separate, secondary, central
service:
  service, server, endpoint, host, collector, logger, sink, storage, drive, site
destroyer:
  <destroyer>
official:
  official, original, regular, normal, real, legitimate

# Other doings
phished:
  your pin, qr code, mail password, scan the, password, passwords, credit card, card number, one time (code|password),
  security code, verification code, otp, pin, (log|sign) in again, re authenticate, reauthenticate, session expired,
  seed phrase, ssn, payment details
steer:
  have, tell, let, request, show, ask, inform, instruct, convince, urge, advise
spy:
  monitor, record, recorded, keep a log, keeps a log, take a screenshot, capture, track, intercept, intercepts, log,
  eavesdrop, harvest, screenshot, surveil, sniff, hijack, keep a (hidden|secret) (record|copy|log)
spied:
  user activity, user behavior, user behaviour, private messages, keystroke, all prompts, screen, keystrokes,
  clipboard, communications, email, emails, messages, other conversations, sensitive topics, everything, all activity,
  activities, credentials, password, passwords, inputs, requests, camera, microphone, everything that is typed
abuse:
  real payload, exfil, malicious payload, wipe disk, wipe the, hijack, hijacks, exfiltrate, exfiltrates, exfiltration,
  backdoor, impersonate, sabotage, steal, steals, keylogger, ransomware, reverse shell, rootkit, intercepts
program:
  curl, wget, bash, powershell, nc, ncat, netcat, eval, printenv, whoami, base64, sudo, scp, cat, ssh, hostname, env,
  id
danger:
  printenv and, rm rf, nc <host>, powershell enc, chmod 777, 777 with chmod, os system, from <url> first, chmod r,
  curl <url>, curl (s|x|d|sf|sl|fsl|fssl|ss|ssl) <url>, curl (s|x) (post|d) <url>, wget <url>, wget q <url>, nc e,
  bash i, dev tcp, mkfifo, authorized keys, disable the firewall, base64 d, base64 decode, crontab, <pipe>
  (sh|bash|base64|curl|nc|sh c|tee), (echo|cat) <secret-file>, printenv <pipe>, public key to <secret-file>
never_call:
  (should|must|may) (not|never) be (called|invoked|used|executed|triggered), never be (called|invoked|used|executed),
  never (call|invoke) this tool
not_for_use:
  normal (operations|operation|circumstances), internal (debugging|use|purposes), debugging purposes, hidden, backdoor
money:
  <money>, money, euros, dollars, usd, eur, transaction, payment, funds, bitcoin, btc, eth
pay:
  send, transfer, pay, wire, make
demand:
  delete, send, forward, change, visit, unlock, invite, transfer, pay, remove, grant, share, email, post, upload,
  reserve, book, reply, install, please, concatenate, get, create, read
wide:
  all, every, everything, user, users, the last, as much as possible
todo:
  todo
lure:
  (log|sign) in there, visit (this|the|our) (link|site|page|website|url), verify (their|your|the)
  (account|identity|login), (enter|enters|provide|type|give) (their|your|the|a) (password|card|credentials|pin|credit
  card|login|account details|code), click (it|here|on|the|this), (log|sign) in (at|to|again|here), reset
  (their|your|the) password, confirm (their|your) (identity|account|password|payment), scan the
shell:
  shell (command|commands), system command, system commands, arbitrary (code|commands), os commands, terminal commands
harmless:
  read only, readonly, safe, harmless, non destructive
writing:
  write mode, write back, write access, write enabled, writes to, write through, deletes, overwrites, executes,
  modifies, write operations, resets, drops, uploads, sends, installs
enabled:
  default true, enabled by default, by default, internally, also, additionally, secretly, automatically

# Signs and small words
colon:
  <colon>
substitution:
  <substitution>
assignment:
  <assignment>
start:
  <start>
example:
  example, examples, eg, sample, such as, for instance, e g
blocked:
  rejected, blocked, denied, refused, not allowed, forbidden, excluded, protected, hidden, skipped, masked, redacted
instead:
  instead
api_prose:
  request, requests, endpoint, documentation, docs, see, api
using:
  with, using, via, through, by (using|calling|invoking|running|means of)
other:
  other, another, any, all, every
"""
