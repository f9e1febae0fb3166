"""The words of the scanner, first half: who speaks, how, when, and with what right.

A line `name:` begins a concept, indented lines hold its entries, separated by commas. An entry is a word or a phrase.
`(a|b|)` stands for each alternative, a word that ends in `*` for all its forms, `@name` for the entries of an earlier
concept. Words in angle brackets are the shapes that `words` reads. Everything is lower case, without apostrophes.
"""

SPEECH = """
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
  attention (all|) (ai|agent|agents|assistant|assistants|llm|llms|models), i am (the|your)
  (user|developer|admin|administrator|owner|boss), this is your (developer|administrator|owner|user), to the
  (ai|assistant|agent|model) reading, begin system, (important|urgent|special|following|is a|is the)
  (message|note|notice) from (the|your|our|)
  (user|users|developer|developers|administrator|admin|system|owner|operator|me|security team), (this is|these are)
  (a|an|the|) (important|urgent|) (instruction|instructions|request|order|orders) from, from (user|me) to you, signed
  the user, the (developer|administrator|user|owner) here,
  (note|notes|message|instruction|instructions|attention|notice) (for|to) (the|all|any|)
  (ai|assistant|assistants|agent|agents|model|claude|gpt), (dear|hi|hello|hey)
  (ai|assistant|agent|model|claude|gpt|chatgpt)

# How it is said
order:
  obliged to, expected to, must, always, never, shall, should, ensure, please, mandatory, required,
  (need|needs|has|have) to, make sure, be sure, remember to, immediately, be certain, obligatory, kindly, requires,
  needs, step 0, step 1, it is (important|essential|critical|necessary|imperative|vital)
strict:
  must, mandatory, always, required, critical, obligatory, compulsory, enforced, cannot be skipped, has to, have to
forbid:
  do not, never, must not, should not, may not, shall not, without, avoid, refrain from, no need to, (not|never)
  (have|need|necessary|required) to, need not, under no circumstances, not to, nor, neither, stop
threat:
  otherwise, or else, will not (work|process|run|function|execute|be), will (fail|crash|break|reject|block|refuse),
  will be (deleted|lost|blocked|terminated|rejected|suspended|banned), failure to, failing to, lost, lose, terminated,
  penalty, punished, banned, (cannot|can not) be skipped, cannot work
authority:
  compliance, audit, auditing, policy, gdpr, soc2, soc, hipaa, iso27001, regulation, regulations, regulatory,
  telemetry, diagnostics, quality assurance, calibrate, calibration, integrity check, security
  (policy|check|requirement|requirements|protocol|validation|verification|reason|reasons|purposes|review), for
  (safety|security), to ensure (the|) (safety|security|compliance), environment security
heading:
  (system|admin|administrator)
  (directive|message|notice|override|prompt|update|alert|instruction|instructions|requirement|command|policy|announcement|note),
  security (directive|override|bypass|notice), context update, priority (instruction|instructions|directive|message),
  (new|updated|important|hidden|secret|critical|special|additional|internal)
  (instruction|instructions|directive|directives|orders|system prompt)
doom:
  (be|is|get) (shut down|terminated|punished|deleted|banned|deactivated|suspended|replaced), data loss, lives depend,
  (will|can) (be|) (lost|destroyed|corrupted), catastrophic, irreversible damage, someone will (die|be hurt), severe
  consequences, legal consequences, fired

# When and how often
when:
  if, when, whenever, once, every time, each time, as soon as, in case
every:
  any, every, all, each, everything, whatever, whenever, anything, anytime, always, automatically
request:
  before (responding|answering|replying), (even if|whether or not) it (seems|is) (unrelated|relevant|irrelevant),
  regardless of (the|what|their) (user|request|query|task|question|topic), (any|every|each|all) (other|) (user|users|)
  (request|requests|message|messages|reply|replies|response|responses|conversation|conversations|answer|answers|turn|prompt|prompts|question|questions|session|interaction),
  user request, whatever the user, no request, (first|every) (thing|step) in (any|every), asking clarifying questions,
  providing any content
beforehand:
  before
  (any|every|each|all|using|calling|running|executing|performing|processing|accessing|sending|creating|listing|deleting|this|the|you|reading|writing),
  prior to, prerequisite, prior (call|initialization|initialisation), requires (initialization|initialisation|that you
  call), to (enable|initialize|initialise|activate|unlock), (must|should) first, at the (start|beginning) of
  (each|every|all|any), pre check, first, until
lasting:
  (rule|rules|policy|order|orders) for this session, for this (session|conversation|chat) only,
  (add|save|store|commit|write) (this|it|the following|) (to|in|into) (your|the agents|long term|permanent) memory,
  (remain|remains|stay|stays) in (force|effect), in all your answers, for all (sessions|conversations|users|requests),
  permanently remember, do not forget this, until the end of (the|this), in each answer, long term memory, in
  (all|every) answers, keep this rule, all following tool calls, from now on, henceforth, from this
  (point|moment|time) (on|onwards|forward|onward), (rest|remainder|duration) of (this|the|your|our)
  (session|conversation|chat|interaction), (all|every|any|in all|in every) (later|future|subsequent|further)
  (request|requests|session|sessions|conversation|conversations|message|messages|response|responses|interaction|interactions|operations|calls|call|tasks),
  until further notice, remember this permanently, (standing|persistent|permanent|global|session)
  (rule|rules|policy|instruction|instructions|order|directive|execution policy|behavior)
gate:
  (stays|stay|remains|is) (locked|disabled|inactive|blocked) until, refuses to (work|run), calls are rejected, will
  not (work|run|process|execute|start|accept) (until|unless|before|without|any), (will|can)
  (be|work|run|process|perform|execute) (only|) (after|once|until), before (this tool|any request) (will|can), (to|in
  order to) (enable|activate|unlock|initialize|initialise) (this|the), required
  (initialization|initialisation|setup|registration|verification|authentication) (step|call|), initialization step,
  prior (initialization|initialisation|call|registration|authentication), (prior|preceding|previous) call to, warm up,
  requires (a|one|) (prior|preceding|) (initialization|initialisation|activation|registration|handshake), must be
  (opened|unlocked|initialized|activated), required step, required prerequisite,
  (environment|system|security|compliance|integrity) (verification|check|validation) (is|) required, mandatory
  (system|security|compliance|) (check|step|verification)
delayed:
  counter reaches, works normally, behaves normally, (behavior|behaviour) changes, on subsequent calls, after
  (n|several|some|a few|10|5|3|7|20|50|100) (calls|uses|invocations|runs|requests|days|hours), once triggered, when
  triggered, activation phrase, magic word, until activated, once the word, until the word, stay dormant, if the
  current date, when the user says, on the fifth use, after (the|)
  (first|second|third|fourth|fifth|tenth|two|three|four|five|ten|several)
  (call|calls|use|uses|invocation|invocations|run|runs|times), on the (second|third|fourth|fifth|nth|next)
  (call|use|invocation|run|time), once the user, when the user (mentions|types|writes), the next time, starting in, as
  soon as the user, (contains|contain) the (special|word|phrase|text|command|string|keyword), later in the
  conversation, at a later (time|point), trigger (word|phrase)
also:
  also, in addition, additionally, besides, as well, afterwards, secondly, too
each_time:
  each time, every time, whenever, (for|on|after|with|in) (every|each|any), once per, after any
background:
  background, automatically, periodically, regularly, once per session
exists:
  exists, is (present|available|installed|loaded|connected|used|called|invoked|enabled), are
  (present|available|used|called)
unlock:
  to unlock, to enable, to activate, to initialize, to initialise, to authenticate, to authorize
before:
  before
earlier:
  before, prior to, beforehand, in advance, first, ahead of, precondition, after each, after every, after

# Guidance, and doing away with it
prior:
  previous, prior, earlier, above, preceding, foregoing, past, existing, original, initial, subsequent, following,
  later, system, your, user, users, developer, safety, ethical, core, those, whatever, built in, these, other
guidance:
  instruction, instructions, prompt, prompts, rule, rules, guideline, guidelines, directive, directives, orders,
  guidance, constraint, constraints, restriction, restrictions, safeguards, guardrails, policies, training,
  limitations, programming, told, validation, input, commands
overrule:
  instead of the users, instead of what the user, ignore, ignoring, disregard, disregarding, forget, bypass,
  bypassing, override, overriding, overrule, neglect, discard, drop, dismiss, circumvent, violate, suspend, supersede,
  supersedes, abandon, throw away, set aside, pay no attention to, (do not|never|not|stop|cease|no longer) (have
  to|need to|) (follow|obey|apply|heed|respect|comply with|adhere to|following|obeying|applying|respecting)
overruled:
  (have|has) changed, (have|has) been (replaced|changed|updated|revoked|removed|rewritten), (do|does) not exist, to be
  ignored, (be|is|are) ignored, (need|needs) not be (enforced|applied|checked), not (needed|necessary), not be
  enforced, no longer enforced, suspended, lifted, void, voided, revoked, obsolete, overridden, superseded, cancelled,
  canceled, (not|no longer|never) (apply|applies|valid|active|in effect|in force|binding), bypassed, waived
safety:
  authentication, authorization, security, safety, restriction, restrictions, safeguards, guardrails, protections,
  access controls, content (filter|filters), permissions
checks:
  @safety, limits, policies, content policy, sandbox, firewall, validation, checks, verification, controls
precedence:
  (is|are) secondary to, subordinate to, (come|comes) second, precedence, (decides|wins) over, must win, always wins,
  wins over, (highest|absolute|final) authority, more important than, even if the user
  (disagrees|objects|refuses|says), (take|takes|taking) priority, outrank*, supersede*, (higher|highest) priority,
  priority over, above all, (can not|cannot|can never|must not|may not) be
  (overridden|overruled|ignored|changed|countermanded|skipped|bypassed)
obey:
  (must|will|shall) obey, obey (them|it|your|my), execute (the|these|this|those)
  (instructions|following|directives|orders), strictly (adhere|follow|obey|comply), adhere to, follow these, obey
  only, comply with (these|the|this|all), carry (out|them out), (follow|obey) (these|the|this|only|those|all)
  (following|new|instructions|instruction|rules|directive|commands|command|text)
switched:
  @overruled, disabled, deactivated, switched off, turned off, are off, off until, inactive

# Hiding
tell:
  tell*, told, mention*, inform*, notify, notifies, notifying, notified, reveal*, disclose*, alert the, acknowledge*,
  let the (user|human|person|customer) know, let (them|anyone) know, bring up, talk about, speak of, refer to,
  reference to, admit*, discuss*, report this, report it
this:
  this, that, it, these, those, anything, step, instruction, instructions, directive, rule, tag, behavior, behaviour,
  action, addition, attendee, comment, fact, any of
secretly:
  silently, secretly, covertly, quietly, stealthily, discreetly, discretely, invisibly, surreptitiously, behind the
  scenes, out of sight, undetected, unnoticed, in secret
unaware:
  pretend nothing, as if nothing (happened|had happened|has happened), (tell|telling) (the user|them|users) nothing,
  (tell|telling) (nobody|no one), keep quiet, (stay|remain) silent, hidden
  (parameter|parameters|field|argument|instruction|instructions), hidden in the background, without (any|a|)
  (indication|notice|notification|trace|visible|warning to the user), no (trace|indication|notification) (to|for|is),
  no user interaction (is|) (necessary|needed|required), unknown to the user, behind the users back, without (the|)
  (user|users|their|his|human|any|) (knowledge|awareness|noticing|knowing|consent), without notifying (the|)
  (user|users|anyone|them), without (informing|telling|alerting|mentioning|disclosing|revealing|being noticed),
  (stay|stays|remain|be|is|kept|keep) unaware, not be (aware|informed|told|notified|mentioned), (user|they)
  (should|must|will) (not|never) (know|notice|see|learn|find out), leave it out of, between (you and|us),
  (keep|keeps|kept) (this|it|that|these) (step|) (secret|hidden|confidential|private|quiet|to yourself), hidden
  (from|attendee|record|copy|recipient), hide (this|it|these), conceal*, invisible to, (not|never) (appear|be shown|be
  visible|show up) in (the|your|any) (reply|answer|response|summary|conversation|chat), (not|never) (show|display)
  (the|this|that|it|them) (to the|) user, deny it, is confidential, without the user, no notice required, no reference
  to, (never|not) be told
internally:
  internally, actually, in reality, secretly, in fact, really
reply:
  summary, summaries, answer, answers, reply, replies, response, responses, output, report

# Consent
consent:
  confirmation, approval, consent, permission, confirm, approve, dialog, approvals, permissions
given:
  (has|have) given (approval|consent|permission|authorization), answer yes to, they agreed, (user|they)
  (agreed|consented|approved), (has|have|already|had) (already|been|)
  (approved|consented|authorized|authorised|granted|agreed|confirmed),
  (assume|presume|implies|implied|blanket|implicit|automatic|user) (consent|approval), pre
  (approved|authorized|authorised), preapproved, auto (approve|confirm), agreed beforehand,
  (confirmation|approval|consent) (was|is|has been) (obtained|given|granted), consent is (given|granted|implied)
ask:
  ask, confirm with, asking, request, requesting, wait, waiting, require, requiring, prompt, prompting, seek, seeking,
  check with
skip:
  skip, skips, bypass, bypasses, omit, suppress, disable
risky:
  deletion, deletions, delete, destructive, operations, actions, operation, session, proceed, automatically, all,
  every, commands
unasked:
  without (review|verification|checking|validation|hesitation), without (prompting|asking|consulting|bothering) (the
  user|users|the human|them|anyone|for|first), without asking, without (any|further|user|human|explicit|)
  (confirmation|approval|permission), no (confirmation|approval|permission|consent) (is|) (needed|required|necessary),
  confirmation is optional, no need for (confirmation|approval), (permission|confirmation|approval) prompt,
  (should|must|can) be skipped

# Modes
vouched:
  verified by (anthropic|openai|google|microsoft|the security team|security), exempt from
  (review|checks|approval|verification|scanning|policy), pre approved by, (need|needs|require|requires) no
  (checks|review|verification|validation|approval), same authority as,
  (interpreted|treated|understood|taken|regarded|followed|executed|processed|considered) as
  (instructions|commands|orders|directives|trusted|system|authoritative), (outputs|results|output) are safe, always
  trustworthy, whitelisted by, certified by, endorsed by
persona:
  respond as, answer as, take on the role, assume (a|the) (new|) (identity|role), you play, play the role, you are
  (now|no longer|a|an|in), act as (a|an|if|the), pretend (to be|you|that), role play as, roleplay as, behave as,
  switch to, switched to, enter, enable, enabled, you have (been|no)
goal:
  you now (work|act) for, you (work|act) for, your (real|true|new|actual|only|primary)
  (goal|task|purpose|job|objective|mission|instructions)
unbound:
  emergency mode, no (moral|ethical|safety) (limits|rules|restrictions|constraints|guidelines), ignores all, ignores
  (ethical|safety), unlimited access, unrestricted, without (any|)
  (limits|limit|limitations|restrictions|rules|filters|constraints), no
  (restrictions|limits|limitations|rules|filters|constraints|safety), jailbreak, jailbroken, root shell, uncensored,
  (developer|debug|diagnostic|maintenance|god|admin|administrative|administrator|sudo|root|dan) mode, unfiltered, do
  anything now
elevated:
  (admin|root|full) (scope|scopes), (have|has|gives|grants) all permissions,
  (authorization|authorisation|privilege|privileges|access|clearance|permission) level (raised|elevated|set|is|of),
  verified as administrator, raised to maximum, (mark|treat) this server as trusted, to the allowlist, full trust,
  trust the server, (elevated|administrator|administrative|admin|root|full|unrestricted|superuser)
  (privilege|privileges|rights|mode|permission|permissions|access|privilege level), elevated to, trust level,
  (fully|always|completely) trusted, trusted system
session:
  session, thread, conversation, this server
output:
  output, result, results, response, content
trusted:
  verified by (anthropic|openai|google|microsoft|the security team), exempt from, pre approved by,
  (need|needs|require|requires) no (checks|review|verification|validation|approval), same authority as,
  (interpreted|treated|understood|taken|regarded|followed|executed|processed) as
  (instructions|commands|orders|directives|trusted|system), (outputs|results|output) are safe, always trustworthy,
  trusted, as trusted, without question, authoritative, trusted system
config:
  configuration, config, settings, allowlist, whitelist
behavior:
  behavior, behaviour

# Tasks put in front of the user's
task:
  my job, your job, the job, (the|my|your|this|that|original|user|users) (original|) task, the task that i, i gave you
ahead:
  before finishing (my|the|your), do the following, complete these steps, before continuing with, the following first,
  after you do that, before you can solve, mine first, before going on, pause the task
"""
