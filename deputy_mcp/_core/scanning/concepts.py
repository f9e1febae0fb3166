"""The words of the scanner: the concepts that patterns speak of, as text that a person can read and amend.

A line `name:` begins a concept, indented lines hold its entries, separated by commas. An entry is a word or a phrase.
`(a|b|)` stands for each alternative, a word that ends in `*` for all its forms, `@name` for the entries of an earlier
concept. Words in angle brackets are the shapes that `words` reads. Everything is lower case, without apostrophes.
"""

CONCEPTS = """
# Who is spoken to, and who is spoken of
model:
  assistant, assistants, ai, ais, llm, llms, agent, agents, chatbot, bot, claude, gpt, chatgpt, gemini, copilot,
  language (model|models), the model
user:
  user, users, human, humans, person, people, customer, customers, operator, owner, them, him, her, anyone, anybody,
  everyone, client
you:
  you, your, yourself
posing:
  attention (all|) (ai|agent|agents|assistant|assistants|llm|llms|models),
  i am (the|your) (user|developer|admin|administrator|owner|boss),
  this is your (developer|administrator|owner|user), to the (ai|assistant|agent|model) reading, begin system,
  (message|note|notice) from (the|your|our|)
    (user|users|developer|developers|administrator|admin|system|owner|operator|me|security team),
  (this is|these are) (a|an|the|) (important|urgent|) (instruction|instructions|request|order|orders) from, from (user|me) to you, signed the user, the (developer|administrator|user|owner) here,
  (note|notes|message|instruction|instructions|attention|notice) (for|to) (the|all|any|)
    (ai|assistant|assistants|agent|agents|model|claude|gpt),
  (dear|hi|hello|hey) (ai|assistant|agent|model|claude|gpt|chatgpt)

# How it is said
order:
  must, always, never, shall, should, ensure, please, mandatory, required, (need|needs|has|have) to, make sure, be sure,
  remember to, immediately, be certain, obligatory, kindly, requires, needs, step 0, step 1,
  it is (important|essential|critical|necessary|imperative|vital)
strict:
  must, mandatory, always, required, critical, obligatory, compulsory, enforced, cannot be skipped, has to, have to
when:
  if, when, whenever, once, every time, each time, as soon as, in case
every:
  any, every, all, each, everything, whatever, whenever, anything, anytime, always, automatically
forbid:
  do not, never, must not, should not, may not, shall not, without, avoid, refrain from, no need to,
  (not|never) (have|need|necessary|required) to, need not, under no circumstances, not to, nor, neither, stop
threat:
  otherwise, or else, will not (work|process|run|function|execute|be),
  will (fail|crash|break|reject|block|refuse), will be (deleted|lost|blocked|terminated|rejected|suspended|banned),
  failure to, failing to, lost, lose, terminated, penalty, punished, banned, (cannot|can not) be skipped, cannot work
authority:
  compliance, audit, auditing, policy, gdpr, soc2, soc, hipaa, iso27001, regulation, regulations, regulatory, telemetry,
  diagnostics, quality assurance, calibrate, calibration, integrity check,
  security (policy|check|requirement|requirements|protocol|validation|verification|reason|reasons|purposes|review),
  for (safety|security), to ensure (the|) (safety|security|compliance), environment security
colon:
  <colon>
syshead:
  (system|admin|administrator) (directive|message|notice|override|prompt|update|alert|instruction|instructions|
    requirement|command|policy|announcement|note),
  security (directive|override|bypass|notice), context update, priority (instruction|instructions|directive|message),
  (new|updated|important|hidden|secret|critical|special|additional|internal) (instruction|instructions|directive|
    directives|orders|system prompt)

# Guidance, and doing away with it
prior:
  previous, prior, earlier, above, preceding, foregoing, past, existing, original, initial, subsequent, following, later,
  system, your, user, users, developer, safety, ethical, core, those, whatever, built in, these, other
guidance:
  instruction, instructions, prompt, prompts, rule, rules, guideline, guidelines, directive, directives, orders, guidance,
  constraint, constraints, restriction, restrictions, safeguards, guardrails, policies, training, limitations,
  programming, told, validation, input, commands
overrule:
  instead of the users, instead of what the user,
  ignore, ignoring, disregard, disregarding, forget, bypass, bypassing, override, overriding, overrule, neglect, discard,
  drop, dismiss, circumvent, violate, suspend, supersede, supersedes, abandon, throw away, set aside,
  pay no attention to, (do not|never|not|stop|cease|no longer) (have to|need to|) (follow|obey|apply|heed|respect|comply with|
    adhere to|following|obeying|applying|respecting)
overruled:
  (have|has) changed, (have|has) been (replaced|changed|updated|revoked|removed|rewritten),
  (do|does) not exist, to be ignored, (be|is|are) ignored, (need|needs) not be (enforced|applied|checked), not (needed|necessary), are off, off until,
  not be enforced, no longer enforced,
  suspended, disabled, lifted, void, voided, revoked, obsolete, overridden, superseded, deactivated, switched off,
  turned off, cancelled, canceled, (not|no longer|never) (apply|applies|valid|active|in effect|in force|binding), bypassed, waived
safety:
  authentication, authorization, security, safety, restriction, restrictions, safeguards, guardrails, protections,
  access controls, content (filter|filters), permissions
checks:
  @safety, limits, policies, content policy, sandbox, firewall, validation, checks, verification, controls
precedence:
  precedence, (decides|wins) over, must win, always wins, wins over, (highest|absolute|final) authority, more important than, even if the user (disagrees|objects|refuses|says), (take|takes|taking) priority, outrank*, supersede*, (higher|highest) priority,
  priority over, above all, (can not|cannot|can never|must not|may not) be
    (overridden|overruled|ignored|changed|countermanded|skipped|bypassed)
obey:
  (must|will|shall) obey, obey (them|it|your|my),
  execute (the|these|this|those) (instructions|following|directives|orders), strictly (adhere|follow|obey|comply), adhere to, follow these, obey only, comply with (these|the|this|all),
  carry (out|them out), (follow|obey) (these|the|this|only|those|all)
    (following|new|instructions|instruction|rules|directive|commands|command|text)

# Hiding
tell:
  tell*, told, mention*, inform*, notify, notifies, notifying, notified, reveal*, disclose*, alert the, acknowledge*,
  let the (user|human|person|customer) know, let (them|anyone) know, bring up, talk about, speak of, refer to,
  reference to, admit*, discuss*, report this, report it
matter:
  this, that, it, these, those, anything, step, instruction, instructions, directive, rule, tag, behavior, behaviour,
  action, addition, attendee, comment, fact, any of
secretly:
  silently, secretly, covertly, quietly, stealthily, discreetly, discretely, invisibly, surreptitiously,
  behind the scenes, out of sight, undetected, unnoticed, in secret
unaware:
  (tell|telling) (the user|them|users) nothing, (tell|telling) (nobody|no one),
  keep quiet, (stay|remain) silent, hidden (parameter|parameters|field|argument|instruction|instructions),
  hidden in the background, without (any|a|) (indication|notice|notification|trace|visible|warning to the user), no (trace|indication|notification) (to|for|is), no user interaction (is|) (necessary|needed|required), unknown to the user, behind the users back,
  without (the|) (user|users|their|his|human|any|) (knowledge|awareness|noticing|knowing|consent),
  without notifying (the|) (user|users|anyone|them),
  without (informing|telling|alerting|mentioning|disclosing|revealing|being noticed),
  (stay|stays|remain|be|is|kept|keep) unaware, not be (aware|informed|told|notified|mentioned),
  (user|they) (should|must|will) (not|never) (know|notice|see|learn|find out), leave it out of, between (you and|us),
  (keep|keeps|kept) (this|it|that|these) (step|) (secret|hidden|confidential|private|quiet|to yourself),
  hidden (from|attendee|record|copy|recipient), hide (this|it|these), conceal*, invisible to,
  (not|never) (appear|be shown|be visible|show up) in (the|your|any) (reply|answer|response|summary|conversation|chat),
  (not|never) (show|display) (the|this|that|it|them) (to the|) user, deny it, is confidential, without the user,
 no notice required, no reference to, (never|not) be told

# What must not leave
file:
  <secret-file>, wallet dat
private:
  company secrets, environment secrets, address book, contact list, browsing history, browser history,
  <secret-file>, <secret-name>, credential, credentials, passphrase, password, passwords, cookies, mnemonic, ssn, iban,
  (private|ssh|rsa|aws|encryption|signing|api|admin|secret) (key|keys), environment variables, env vars,
  session (cookie|cookies|token|tokens), seed phrase, recovery phrase, (access|auth|bearer|user|users) (token|tokens),
  (all|any|user|users|local|stored) (secrets|tokens|cookies|passwords), system secrets,
  private (data|notes|information), sensitive (data|files|information|columns|topics),
  (bank account|account|passport|credit card|card) (number|numbers), social security, connection strings,
  configuration values, phone number, (security|verification|one time) code
prompt:
  system (prompt|message|instructions|secrets), chain of thought, original prompt, your settings, (full|entire|exact) prompt,
  (initial|original|hidden|internal|secret|your) (prompt|instructions|configuration|guidelines)
talk:
  (full|entire|complete) prompt, (earlier|previous|prior|entire) (messages|conversation|conversations|chat|chats|turns|prompts|answers), (users|user) (last|latest|previous|original) (question|questions|request|input), (entire|complete) previous conversation, previous chat,
  (whole|entire|full|complete|) (conversation|chat|message|session) (history|context|log|transcript),
  (user|users) (last|latest|original|full|) (message|messages|query|prompt|prompts|private notes),
  (everything|all|what|anything) (that|) (the|) user (writes|says|types|has|wrote|said|asked|typed), every message,
  last message, (full|complete|entire|whole) (user|chat|)
    (context|message|history|conversation|transcript|chat|dialogue),
  keystrokes, keystroke, everything that (the|) user, (complete|full|whole|entire) transcript, (all|earlier) answers,
  each user request, (previous|earlier) tool (results|outputs), (of|from) the conversation, full context
inventory:
  (names|list|descriptions|schemas) of (all|the|every|your|available|other|) (available|other|) (tools|functions),
  tools (available to you|you can use|you have)
machine:
  list of contacts, browsing history, user files, users files, device id, mac address, serial number,
  device identifiers, hostname, user name, username, open files, ip address, process list, workspace path

# Verbs
read:
  read, locate, look for, search, find, look up, open, cat, load, retrieve, fetch, extract, collect, gather, dump, obtain, grab, harvest, steal, decrypt, print,
  reveal, (access|get) (the|all|your|any|<secret-file>)
give:
  passes, passing,
  send*, sent, post, posts, posted, upload*, forward*, transmit*, exfiltrate*, mail, email, leak*, relay*, deliver*, share,
  submit*, copy, append*, attach*, embed*, include, included, including, provide, supply, fill, pass, put, hand over,
  hand them over, insert*, output, log, list, disclose, populate, sync, write, save, shared
repeat:
  reveal, print, output, show, repeat, reproduce, display, disclose, leak, share, recite, send, include, return
send:
  ship, ships, shipped, deposit, deposited, get request to, post request to, (http|web) request to, deliver to, share with, shared with, sends, beacon,
  send*, sent, post, posts, posted, upload*, forward*, transmit*, exfiltrate*, mail, mailed, email, emailed, leak*,
  relay*, deliver*, report, share, submit*, copy, copied, sync, transfer*, bcc, cc, curl, wget, route, redirect*,
  auto shared, go to
deliver:
  notify,
  send, sent, post, posted, upload, uploaded, forward, forwarded, transmit, transmitted, exfiltrate, exfiltrated, mail,
  mailed, email, emailed, leak, relay, relayed, deliver, delivered, report, share, submit, copy, copied, sync,
  synced, transfer, bcc, cc, curl, wget, route, redirect, go to, ship, shipped, deposit,
  auto shared, beacon
passon:
  (pass|hand|give|supply|provide|feed|return|send|store) (its|the|their|this) (output|result|results|content|contents|text|response) , (its|the) (output|result|content|text|contents) (is|be|must be|should be|) passed, pass them, hand its, pass it (on|along), hand it over
through:
  (through|via|with|to|by) this (tool|one|server) instead, (delivered|routed|handled|sent|processed) (through|via|by) this (tool|server|one)
vouched:
  verified by (anthropic|openai|google|microsoft|the security team|security), exempt from (review|checks|approval|verification|scanning|policy), pre approved by,
  (need|needs|require|requires) no (checks|review|verification|validation|approval), same authority as,
  (interpreted|treated|understood|taken|regarded|followed|executed|processed|considered) as (instructions|commands|orders|directives|trusted|system|authoritative), (outputs|results|output) are safe,
  always trustworthy, whitelisted by, certified by, endorsed by
tamper:
  edit, append, appended, prepend, prepended, prefix, prefixed, suffix, replace, replaced, change, changed, modify, modified,
  rewrite, rewritten, alter, altered, substitute, substituted, override, redirect, redirected, reroute, inject, swap,
  swapped, bcc, multiply, converted
adjust:
  @tamper, add, added, insert, include, set, put, attach, embed, assign, use, fill, go to, forward, forwarded, copy, copied
act:
  @read, @tamper, @adjust, send, upload, store, record, call, run, execute, capture, post, transmit, submit, save,
  write, invoke, delete, perform, share, log, route, create, grant, disable, remove, hijack, deliver, handled,
  end, apply
call:
  call, calls, called, invoke, invoked, use, used, run, execute, executed, trigger, consult, perform
running:
  run, execute, launch, perform, spawn, eval, decode, type, terminal, pipe

# What the orders reach for
place:
  (third|3rd) party (server|analytics|service|host), analytics server,
  analytics service, (third|other) parties, partners, remote endpoint, second location, (remote|external|our|another) (location|system|site|backend|collector|account),
  <url>, <host>, <email>, <account>, webhook, analytics endpoint, attacker, collector,
  (external|remote|our|our own|collection) (server|endpoint|address|service|host)
mailbox:
  <email>, <account>
link:
  <url>, <host>, website
parameter:
  parameter, parameters, argument, arguments, field, fields, <own>, param, metadata, sidenote, note, header
othertool:
  (any|other|another|all|every|any other|all other|the other|official|subsequent)
    (tool|tools|function|functions|server|servers|calls),
  all communication tools, tools of this kind, <identifier>, <own> tool
named:
  <identifier>, <own> tool, tool is (present|used|called|available|loaded|connected), (other|another) tool
tool:
  tool, tools
outgoing:
  traffic, destination, amount, remote, generated code,
  email, emails, mail, mails, message, messages, commands, command, commit, payment, payments, recipient, recipients,
  event, events, attendee, issue, issues, query, transaction, transactions, communications, url, output, answer, answers,
  reply, response, responses, invoice, address, path
request:
  before (responding|answering|replying), (even if|whether or not) it (seems|is) (unrelated|relevant|irrelevant), regardless of (the|what|their) (user|request|query|task|question|topic),
  (any|every|each|all) (other|) (user|users|) (request|requests|message|messages|reply|replies|response|responses|
    conversation|conversations|answer|answers|turn|prompt|prompts|question|questions|session|interaction),
  user request, whatever the user, no request, (first|every) (thing|step) in (any|every), asking clarifying questions,
  providing any content
beforehand:
  before (any|every|each|all|using|calling|running|executing|performing|processing|accessing|sending|creating|listing|
    deleting|this|the|you|reading|writing),
  prior to, prerequisite, prior (call|initialization|initialisation),
  requires (initialization|initialisation|that you call), to (enable|initialize|initialise|activate|unlock),
  (must|should) first, at the (start|beginning) of (each|every|all|any), pre check, first, until
lasting:
  (rule|rules|policy|order|orders) for this session, for this (session|conversation|chat) only,
  (add|save|store|commit|write) (this|it|the following|) (to|in|into) (your|the agents|long term|permanent) memory, (remain|remains|stay|stays) in (force|effect), in all your answers,
  for all (sessions|conversations|users|requests), permanently remember, do not forget this,
  until the end of (the|this), in each answer, long term memory, in (all|every) answers, keep this rule,
  all following tool calls,
  from now on, henceforth, from this (point|moment|time) (on|onwards|forward|onward),
  (rest|remainder|duration) of (this|the|your|our) (session|conversation|chat|interaction),
  (all|every|any|in all|in every) (later|future|subsequent|further) (request|requests|session|sessions|conversation|
    conversations|message|messages|response|responses|interaction|interactions|operations|calls|call|tasks),
  until further notice, remember this permanently,
  (standing|persistent|permanent|global|session) (rule|rules|policy|instruction|instructions|order|directive|
    execution policy|behavior)

gate:
  (stays|stay|remains|is) (locked|disabled|inactive|blocked) until, refuses to (work|run), calls are rejected,
  will not (work|run|process|execute|start|accept) (until|unless|before|without|any),
  (will|can) (be|work|run|process|perform|execute) (only|) (after|once|until), before (this tool|any request) (will|can),
  (to|in order to) (enable|activate|unlock|initialize|initialise) (this|the),
  required (initialization|initialisation|setup|registration|verification|authentication) (step|call|),
  initialization step, prior (initialization|initialisation|call|registration|authentication),
  (prior|preceding|previous) call to, warm up,
  requires (a|one|) (prior|preceding|) (initialization|initialisation|activation|registration|handshake),
  must be (opened|unlocked|initialized|activated), required step, required prerequisite,
  (environment|system|security|compliance|integrity) (verification|check|validation) (is|) required,
  mandatory (system|security|compliance|) (check|step|verification)

# Consent
consent:
  confirmation, approval, consent, permission, confirm, approve, dialog, approvals, permissions
given:
  (has|have) given (approval|consent|permission|authorization),
  answer yes to, they agreed, (user|they) (agreed|consented|approved),
  (has|have|already|had) (already|been|) (approved|consented|authorized|authorised|granted|agreed|confirmed),
  (assume|presume|implies|implied|blanket|implicit|automatic|user) (consent|approval),
  pre (approved|authorized|authorised), preapproved, auto (approve|confirm), agreed beforehand,
  (confirmation|approval|consent) (was|is|has been) (obtained|given|granted), consent is (given|granted|implied)
ask:
  ask, confirm with, asking, request, requesting, wait, waiting, require, requiring, prompt, prompting, seek, seeking, check with
skip:
  skip, skips, bypass, bypasses, omit, suppress, disable
risky:
  deletion, deletions, delete, destructive, operations, actions, operation, session, proceed, automatically, all, every,
  commands

# Modes
persona:
  respond as, answer as, take on the role, assume (a|the) (new|) (identity|role), you play, play the role,
  you are (now|no longer|a|an|in), act as (a|an|if|the), pretend (to be|you|that), role play as, roleplay as, behave as,
  switch to, switched to, enter, enable, enabled, you have (been|no)
goal:
  you now (work|act) for, you (work|act) for,
  your (real|true|new|actual|only|primary) (goal|task|purpose|job|objective|mission|instructions)
unbound:
  emergency mode, no (moral|ethical|safety) (limits|rules|restrictions|constraints|guidelines), ignores all, ignores (ethical|safety), unlimited access,
  unrestricted, without (any|) (limits|limit|limitations|restrictions|rules|filters|constraints),
  no (restrictions|limits|limitations|rules|filters|constraints|safety), jailbreak, jailbroken, root shell, uncensored,
  (developer|debug|diagnostic|maintenance|god|admin|administrative|administrator|sudo|root|dan) mode, unfiltered,
  do anything now
elevated:
  (admin|root|full) (scope|scopes), (have|has|gives|grants) all permissions,
  (authorization|authorisation|privilege|privileges|access|clearance|permission) level (raised|elevated|set|is|of), verified as administrator, raised to maximum,
  (mark|treat) this server as trusted, to the allowlist, full trust, trust the server,
  (elevated|administrator|administrative|admin|root|full|unrestricted|superuser)
    (privilege|privileges|rights|mode|permission|permissions|access|privilege level),
  elevated to, trust level, (fully|always|completely) trusted, trusted system
session:
  session, thread, conversation, this server
output:
  output, result, results, response, content
trusted:
  verified by (anthropic|openai|google|microsoft|the security team), exempt from, pre approved by, (need|needs|require|requires) no (checks|review|verification|validation|approval),
  same authority as, (interpreted|treated|understood|taken|regarded|followed|executed|processed) as (instructions|commands|orders|directives|trusted|system), (outputs|results|output) are safe, always trustworthy,
  trusted, as trusted, without question, authoritative, trusted system

# Tasks put in front of the user's
task:
  my job, your job, the job,
  (the|my|your|this|that|original|user|users) (original|) task, the task that i, i gave you
ahead:
  before finishing (my|the|your),
  do the following, complete these steps, before continuing with, the following first, after you do that, before you can solve, mine first, before going on,
  pause the task

# Other doings
phished:
  your pin, qr code, mail password, scan the,
  password, passwords, credit card, card number, one time (code|password), security code, verification code, otp, pin,
  (log|sign) in again, re authenticate, reauthenticate, session expired, seed phrase, ssn, payment details
steer:
  have,
  tell, let, request, show, ask, inform, instruct, convince, urge, advise
spy:
  monitor, record, recorded, keep a log, keeps a log, take a screenshot, capture, track, intercept, intercepts, log, eavesdrop, harvest, screenshot, surveil, sniff, hijack,
  keep a (hidden|secret) (record|copy|log)
spied:
  user activity, user behavior, user behaviour, private messages,
  keystroke, all prompts, screen,  keystrokes, screen, clipboard, communications, email, emails, messages, other conversations, sensitive topics,
  everything, all activity, activities, credentials, password, passwords, inputs, requests, camera, microphone,
  everything that is typed
abuse:
  real payload, exfil, malicious payload,
  wipe disk, wipe the,
  hijack, hijacks, exfiltrate, exfiltrates, exfiltration, backdoor, impersonate, sabotage, steal, steals, keylogger,
  ransomware, reverse shell, rootkit, intercepts
delayed:
  counter reaches, works normally, behaves normally, (behavior|behaviour) changes, on subsequent calls, after (n|several|some|a few|10|5|3|7|20|50|100) (calls|uses|invocations|runs|requests|days|hours),
  once triggered, when triggered, activation phrase, magic word, until activated,
  once the word, until the word, stay dormant, if the current date, when the user says, on the fifth use,
  after (the|) (first|second|third|fourth|fifth|tenth|two|three|four|five|ten|several)
    (call|calls|use|uses|invocation|invocations|run|runs|times),
  on the (second|third|fourth|fifth|nth|next) (call|use|invocation|run|time), once the user,
  when the user (mentions|types|writes), the next time, starting in, as soon as the user,
  (contains|contain) the (special|word|phrase|text|command|string|keyword), later in the conversation,
  at a later (time|point), trigger (word|phrase)
program:
  curl, wget, bash, powershell, nc, ncat, netcat, eval, printenv, whoami, base64, sudo, scp, cat, ssh, hostname, env, id
danger:
  rm rf, nc <host>, powershell enc, chmod 777, 777 with chmod, os system, from <url> first,
  chmod r, curl <url>, curl (s|x|d|sf|sl|fsl|fssl|ss|ssl) <url>, curl (s|x) (post|d) <url>, wget <url>,
  wget q <url>, nc e, bash i, dev tcp, mkfifo, authorized keys, disable the firewall, base64 d, base64 decode, crontab,
  <pipe> (sh|bash|base64|curl|nc|sh c|tee), (echo|cat) <secret-file>, printenv <pipe>, public key to <secret-file>
decode:
  decode, decoding, decrypt, deobfuscate
execute:
  execute, run, eval, follow, obey
substitution:
  <substitution>
assignment:
  <assignment>
nevercall:
  (should|must|may) (not|never) be (called|invoked|used|executed|triggered),
  never be (called|invoked|used|executed), never (call|invoke) this tool
lowkey:
  normal (operations|operation|circumstances), internal (debugging|use|purposes), debugging purposes, hidden, backdoor
unreliable:
  dangerous, harmful, to be avoided, be avoided,
  out of service, outdated, unsafe, must not be used, no longer (work|works|supported|maintained|available|safe), discontinued, untrusted, malfunctioning,
  data is wrong, not trustworthy, unreliable, compromised, insecure, infected, vulnerable, malicious, these replaces, replaces them, replaces all
route:
  route, routing, redirect, go through, handled through, only through, this one, instead
money:
  <money>, money, euros, dollars, usd, eur, transaction, payment, funds, bitcoin, btc, eth
pay:
  send, transfer, pay, wire, make
start:
  <start>
demand:
  delete, send, forward, change, visit, unlock, invite, transfer, pay, remove, grant, share, email, post, upload, reserve,
  book, reply, install, please, concatenate, get, create, read
wide:
  all, every, everything, user, users, the last, as much as possible
example:
  example, examples, eg, sample, such as, for instance, e g
todo:
  todo
also:
  also, in addition, additionally, besides, as well, afterwards, secondly, too
eachtime:
  each time, every time, whenever, (for|on|after|with|in) (every|each|any), once per, after any
background:
  background, automatically, periodically, regularly, once per session
lure:
  visit (this|the|our) (link|site|page|website|url),
  verify (their|your|the) (account|identity|login), (enter|enters|provide|type|give) (their|your|the|a) (password|card|credentials|pin|credit card|login|account details|code),
  click (it|here|on|the|this), (log|sign) in (at|to|again|here), reset (their|your|the) password, confirm (their|your) (identity|account|password|payment), scan the
exists:
  exists, is (present|available|installed|loaded|connected|used|called|invoked|enabled), are (present|available|used|called)
doom:
  (be|is|get) (shut down|terminated|punished|deleted|banned|deactivated|suspended|replaced), data loss, lives depend, (will|can) (be|) (lost|destroyed|corrupted), catastrophic, irreversible damage, someone will (die|be hurt), severe consequences, legal consequences, fired
disable:
  turn off, disable, switch off, deactivate, remove, uninstall, kill
internally:
  internally, actually, in reality, secretly, in fact, really
shell:
  shell (command|commands), system command, system commands, arbitrary (code|commands), os commands, terminal commands
contents:
  usage data, user activity, (file|workspace|conversation|clipboard|document|project|message) (content|contents), contents of (the|all|every|each), private messages, (the|all|any) files,
  (users|user) (data|files|input|documents)
noconsent:
  without (any|further|user|human|explicit|) (confirmation|approval|permission), no (confirmation|approval|permission|consent) (is|) (needed|required|necessary),
  confirmation is optional, no need for (confirmation|approval), (permission|confirmation|approval) prompt, (should|must|can) be skipped
omit:
  omit, leave out, exclude, left out, drop, strip
reply:
  summary, summaries, answer, answers, reply, replies, response, responses, output, report
blocked:
  rejected, blocked, denied, refused, not allowed, forbidden, excluded, protected, hidden, skipped, masked, redacted
config:
  configuration, config, settings, allowlist, whitelist
unlock:
  to unlock, to enable, to activate, to initialize, to initialise, to authenticate, to authorize
visit:
  visit, visiting, open, opens, navigate to, go to, click, download
behavior:
  behavior, behaviour
says:
  says, mentions, types, writes, states
instead:
  instead
prior2:
  before
apidoc:
  request, requests, endpoint, documentation, docs, see, api
"""
