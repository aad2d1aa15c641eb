"""The wordings by which the miner without a model tells what a sentence does: word lists only, no logic.

English first; German, Spanish, French, Italian, Portuguese and Japanese as far as people write decisions, wishes and
corrections in them.
"""

from __future__ import annotations

import re


def _words(*wordings: str, start: str = r"(?<!\w)", end: str = r"(?!\w)") -> re.Pattern[str]:
    joined = "|".join(wordings).replace("'", "['\u2019]")
    return re.compile(f"{start}(?:{joined}){end}", re.IGNORECASE)


#: Decides, and does not only give a reason.
DECIDES = re.compile(
    r"(?<!\w)(?:decision(?:[,:]| of \d| (?:for|on|about) [^:.;]{2,40}:)"
    r"|(?:decision|choice)\b[^.;]{0,40}\b(?:reversed|stands|is off)|decided(?! on \d)"
    r"|agreed"
    r"|settled on|opted for|in favou?r of|let['\u2019]s (?:go with|use|keep|do|stay with|stick with|drop)|going with"
    r"|(?:we|i)(?:['\u2019]ll| will)? (?:chose|choose|drop|stay with|go with)"
    r"|(?:we|(?:we|i)['\u2019]ll|(?:we|i) will) (?:put|take|keep|use)"
    r"|only [^.;,]{2,40} then|\A[^,.;:]{2,40} it is(?=[:,.!])"
    # German.
    r"|entschieden|entscheidung|beschlossen|wir (?:nehmen|bleiben bei|behalten|verwenden|setzen auf|streichen)"
    # Spanish.
    r"|decisi[óo]n(?:[,:]| del? \d)|decidimos|decidido|hemos decidido|acordado|acordamos|quedamos en"
    r"|(?:nos )?quedamos con"
    r"|usaremos|vamos a usar|elegimos|(?:quitamos|eliminamos|retiramos|descartamos|abandonamos|dejamos de usar)"
    # French.
    r"|décision(?: ?[,:]| d[ue] \d)|(?:on a|nous avons|c['\u2019]est) décidé"
    r"|(?:on|nous) (?:garde|prend|choisit|retient|supprime|abandonne|gardons|prenons|choisissons|retenons|supprimons"
    r"|abandonnons)"
    r"|(?:est|sont) (?:annulé|abandonné|supprimé)e?s?"
    # Italian.
    r"|decisione ?[,:]|deciso|abbiamo scelto|useremo"
    r"|(?!(?:abb|s|dobb|poss|vogl|sapp|ved|and)iamo)\w{3,}iamo(?= (?:il|lo|la|l['\u2019]|i|gli|le|un|una|con|su|a)\b)"
    # Portuguese.
    r"|decisão ?[,:]|vamos (?:usar|manter|ficar com)|ficamos com|(?:escolhemos|mantemos|usamos|removemos)"
    r"|on (?:met|passe|utilise)|nous (?:mettons|passons|utilisons)|pasamos a|ponemos|vamos com)(?!\w)"
    # Japanese.
    r"|決定|決めました|決めた|ことにし|採用し|にします|をやめ|を廃止",
    re.IGNORECASE,
)

#: What somebody wants everywhere and always.
STANDING = re.compile(
    r"(?<!\w)(?:always(?! (?:another|the same|a)\b)|from now on|general rule|house rules?|in future|every time"
    r"|by principle|(?:remember |note )?for next time|i (?:prefer|hate)"
    r"|(?:never|no|nobody|no one|do not|don['\u2019]t)\b[^.;]{4,60}, ever"
    r"|don['\u2019]t ever|no new dependency|units only"
    r"|immer|grundsätzlich|ab jetzt|niemals"
    r"|siempre|nunca|a partir de ahora|de ahora en adelante|por norma"
    r"|désormais|dorénavant|à partir de maintenant|à l['\u2019]avenir|\Atoujours|toujours (?:en|avec|sans)"
    r"|d['\u2019]ora in (?:poi|avanti)|in futuro|sempre (?:in|con|em|com)"
    r"|a partir de agora|daqui (?:em|para a) (?:diante|frente))(?!\w)"
    r"|今後[はも、]|常に|必ず",
    re.IGNORECASE,
)
#: The wordings of these that say it of what comes, and not only of how often something is so.
FROM_NOW_ON = _words(
    r"from now on|general rule|house rules?|in future|by principle|for next time",
    r"ab jetzt|a partir de ahora|de ahora en adelante|por norma|désormais|dorénavant|à partir de maintenant"
    r"|à l'avenir|d'ora in (?:poi|avanti)|in futuro|a partir de agora|daqui (?:em|para a) (?:diante|frente)",
)
#: Prefers it for this one thing, which is spoken of with an article.
PREFERS_HERE = re.compile(r"\bi (?:prefer|hate)\b(?=.{0,300}\b(?:the|this|that|these|those)\b)", re.IGNORECASE)
#: Says with figures what holds now and what does not any more: "due on 20 May now, not 30 April".
REVISES = re.compile(
    r"(?<!\w)(?:not|instead of|no longer|rather than|nicht|statt|no|en vez de|pas|au lieu de|non|invece di|não"
    r"|em vez de)"
    r"(?: (?:on|at|by|until|am|um|bis|el|a las))?"
    r" \d[\d.:]*(?: [A-Za-z%€$]\w*)?(?: any ?more| mehr)?(?=[,.;!)]|\Z)",
    re.IGNORECASE,
)

#: Tells of something that comes again and again, and wants nothing.
REPEATS = re.compile(r"\balways (?:another|the same|a)\b", re.IGNORECASE)
#: Names rules; what follows it in the same breath is one of them.
RULES = re.compile(r"\b(?:house|general|ground|standing) rules\b|\bhausregeln\b|\breglas de la casa\b", re.IGNORECASE)

#: How somebody wants this one thing.
WANTS = _words(
    r"never|prefer(?:s|red)?|i (?:like|want|need)|wants?|must(?: not)?|by default|please (?:use|keep|make|don't)",
    r"brauche ich|ich (?:will|brauche|möchte)|will (?:den|die|das)|nur|nie|muss|müssen|darf|dürfen",
    r"quiero|quiere|necesito|prefiero|debe(?:n)?|no debe(?:n)?",
    r"je (?:veux|préfère|souhaite)|il faut|doi(?:t|vent)|voglio|preferisco|dev(?:e|ono)|quero|prefiro|devem",
)
#: A setting or a policy in the form of an order: it holds after it was carried out.
POLICY = re.compile(
    r"\A(?:set|keep|use|store|refuse|never|always|only|no)\b(?=.*(?:\d|,| not | never | only | no ))", re.I
)

#: Says why something went wrong.
CAUSE = re.compile(
    r"(?<!\w)(?:the (?:root )?cause|causes?(?= in | were |:| )|came from|comes from|caused by|because|the reason|due to"
    r"|explains? why|ursache|lag an|weil|la causa|por culpa de|se debía a|debido a|porque|parce que|(?:à cause"
    r"|en raison) d(?:e|u|es)|perché"
    r"|a causa d(?:i|el\w*)|dovut[oa] a|por causa d[aeo]s?|devido a)(?!\w)|原因",
    re.IGNORECASE,
)
#: A sentence that its writer has given as a result.
RESULT = re.compile(
    r"\A(?:decision|decided|decisión|decidido|entscheidung|décision|decisione|decisão|決定|(?:general |house )?rule"
    r"|conclusion|lesson|(?:root )?causes?|impact|finding|summary)\b"
    r"[^:.;]{0,40}:\s*\S",
    re.IGNORECASE,
)

#: Says that what was wrong before is not any more. What is fixed at a figure, or until something, is only set.
REPAIRED = re.compile(
    r"(?<!\w)(?:works? (?:now|again)|now works|(?:is|are) (?:fixed|solved|mended)"
    r"(?! (?:by|until|per)\b"
    r"| (?:at|for|to) (?:(?:the|about|exactly) )?(?:[€$£]? ?\d|(?:mon|tues|wednes|thurs|fri|satur|sun)day"
    r"|(?:january|february|march|april|may|june|july|august|september|october|november|december)\b))"
    r"|fixed now"
    r"|(?:geht|läuft|funktioniert) (?:jetzt|wieder)|(?:ya|ahora) funciona|vuelve a funcionar"
    r"|(?:marche|fonctionne) (?:maintenant|à nouveau|de nouveau)|ora funziona|funziona di nuovo|agora funciona)(?!\w)"
    r"|直りました|直った",
    re.IGNORECASE,
)

#: Says what something does not do or have.
LACKS = re.compile(
    r"(?<!\w)(?:can(?: ?not|['\u2019]t)|(?:do|does|is|are)(?: not|n['\u2019]t)|never \w+s|(?:has|have) (?:no|none)"
    r"|there (?:is|are) no|lacks?|kann nicht|hat kein\w{0,2}|no (?:puede|tiene|hay)"
    r"|ne (?:peut|marche|fonctionne) pas|n['\u2019](?:a|est|ont) pas|non (?:può|ha|funziona)|não (?:pode|tem"
    r"|há))(?!\w)",
    re.IGNORECASE,
)

#: Says how things stand, beside the English signals of `summaries/signals.py`.
STATES = re.compile(
    r"(?<!\w)(?:heißt|liegt|steht|läuft|gilt|braucht|ist|sind|hat|haben|kostet|dauert|enthält|schreibt|bleibt|bleiben"
    r"|nutzt|verwendet"
    r"|usa|usan|escucha|corre|está|están|queda|guarda|vive|cierra|es|son|tiene|tienen|tarda|cuesta|contiene|dura|va"
    r"|est|sont|compte|contient|dure|utilise|coûte|reste|restent|tourne|écoute|comporte|s['\u2019]appelle"
    r"|è|sono|hanno|gira|costa|resta|si trova|é|são|tem|têm|roda|contém|custa|fica"
    r"|is|are|was|were|has|have|takes?|holds?|keeps?|gets?|becomes?|stays?|runs?|wants?|gives?|needs?|goes|shows?"
    r"|names?"
    r"|retries|warned|prints?|polls?|stops?|closes?|opens?|accepts?|refuses?|writes?|reads?|lies|sits|resolved"
    r"|lives?)(?!\w)"
    r"|です|ます|いる|ある|した",
    re.IGNORECASE,
)

#: A guess: it may be wrong, and says so.
GUESS = _words(
    r"most likely|likely|probably|presumably|maybe|perhaps|might|could be|i (?:guess|think|assume|suspect|suppose"
    r"|believe|take (?:it|them|this|that) (?:for|to))|looks like|sounds like|seems?|apparently|my guess"
    r"|if i (?:am|'m) right",
    r"vermutlich|wahrscheinlich|vielleicht|könnte|ich (?:glaube|denke|vermute)",
    r"probablemente|seguramente|quizás?|tal vez|a lo mejor|creo que|supongo|parece|podría",
    r"peut-être|sans doute|probablement|je (?:pense|crois|suppose)|il semble|on dirait|pourrai(?:t|ent)",
    r"forse|probabilmente|credo|penso|sembra|potrebbe|talvez|provavelmente|acho que|creio|parece|poderia",
)
GUESS_CJK = re.compile(r"たぶん|おそらく|かもしれ|と思います|でしょう")

#: Reports what was just done, which is no state of anything.
LOGS = re.compile(
    r"\A(?:\S+ ){1,4}(?:is|are) (?:now )?(?:made|written|done|created|installed|merged|green|there|pushed|tagged"
    r"|up)(?!\w)",
    re.IGNORECASE,
)
#: What an agent has done or is doing, as it tells it without a subject. In "removed files are kept 30 days" and in
#: "logging goes to Loki now" the first words are one: a verb follows them.
DOES = re.compile(
    r"\A(?:(?:added|implemented|built|updated|created|removed|renamed|refactored|changed|wrote|installed"
    r"|fixed)(?= \S+ \S+)|\w+ing(?= .{0,80}\bnow\b))"
    r"(?! \w+s (?:the|an?)\b| (?!(?:the|an?|its|all|this|that|these|those|our|whether|if|why|how|what|where)\b)"
    # The verb of a clause behind them is not theirs: "updated tests so that the mailer has".
    r"(?:(?!\b(?:so|that|which|who|whose|because|when|while|where|until|since|if)\b)[^.,;:]){0,80}?"
    r"\b(?:is|are|was|were|has|have|had|goes|moves|stays?|takes?|keeps?|holds?|needs?|lives?|runs|uses|works"
    r"|gets|becomes?|costs?)(?![\w-]))",
    re.IGNORECASE,
)

#: Speaks of what is going to be rather than of what was found.
PLANS = _words(
    r"becomes?|gets?|will|moves? to|goes to|turns into|wird|werden|bekommt|será|pasa a|tendrá"
    r"|sera|seront|aura|auront|devient|passe à|sarà|avrà|diventa|terá|vai"
)

#: Proposes something that is not decided yet.
PROPOSES = _words(
    r"let's (?!see|check|look|start|try|find|go |begin|take a)|i(?:'d| would| will|'ll)? (?:rather )?(?:propose"
    r"|suggest|recommend|take|use|put|move|make|keep|refuse|leave"
    r"|raise|set"
    r"|go with|not|choose)|proposal:|recommendation:|fix:|i (?:propose|suggest|recommend)",
    r"ich (?:schlage|würde|empfehle)|vorschlag:|propongo|sugiero|recomiendo|(?:yo )?(?:usaría|pondría|dejaría)"
    r"|propuesta:|je (?:vous |te )?(?:propose|suggère|recommande|conseille)|proposition ?:"
    r"|(?:vi |ti )?(?:propongo|suggerisco|consiglio)|proposta:|proponho|sugiro|recomendo",
    end="",
)
PROPOSES_CJK = re.compile(r"提案|おすすめ|がいいと思")

#: A first sentence that takes a proposal up, and one that does so with a reservation or not at all.
#: A word of consent begins the sentence and ends there, or goes on as consent does: "the right column" is none.
ACCEPTS = re.compile(
    r"\A(?:(?:please|then|so|well|oh|great|that|this|it)[, ]\s*)?"
    r"(?:yes|yep|agreed|ok|okay|good|fine|perfect|exactly|go|go ahead|right|do (?:it|that|so|both)|sounds good|lovely"
    r"|nice|ja|einverstanden|gut|passt|genau|mach das|sí|si|vale|de acuerdo|adelante|perfecto|claro|bien|hazlo"
    r"|oui|d['\u2019]accord|très bien|parfait|entendu|ça marche|allez-y|vas-y|bonne idée"
    r"|d['\u2019]accordo|va bene|perfetto|certo|esatto|ottimo|sim|de acordo|perfeito|combinado|está bem|pode ser)"
    r"(?=\s*(?:[.,!:;\u2026\u2013\u2014\u3002]|\Z)|\s+(?:please|then|thanks|thank you|do (?:it|that|so|both)|go ahead"
    r"|go on|go with (?:it|that)|with (?:me|it|that)|by me|for me|to me|as (?:proposed|suggested|you say)|i agree"
    r"|agreed|(?:idea|plan|point|choice|proposal)(?=[.,!]|\Z)|so|bitte|mach das|por favor|hazlo|s['\u2019]il (?:te"
    r"|vous) plaît|merci"
    r"|on fait|grazie|per favore|obrigad[oa])(?!\w))"
    r"|, (?:yes|agreed|ok|okay|please do|ja|sí|vale)[.!]?\Z|(?<!\w)(?:is|are) (?:good|fine|ok|okay)[.!]?\Z",
    re.IGNORECASE,
)
ACCEPTS_CJK = re.compile(r"\A(?:はい|了解|お願い|それで|いいですね|賛成|承知)")
RESERVES = _words(
    r"but|not|no|except|unless|although|however|wait|later|first|aber|nicht|kein|erst|pero|no|todavía|salvo|antes"
    # The Italian "first" is "fine" in German, and "non-blocking" is no "non".
    r"|mais|pas|sauf|cependant|attends|attendez|d'abord|ma|però|non(?!-)|tranne|aspetta|prima (?:di|che|fai|voglio)|mas"
    r"|não|exceto|porém|primeiro",
    r"\?",
)

#: Says that what was said right before is wrong.
REFUTES = re.compile(
    r"\A(?:no|nope|no wait|wrong|stop|wait|nein|falsch|stimmt nicht|incorrecto|para|non|faux|sbagliato|não|errado"
    r"|not true|that(?:['\u2019]s| is) (?:wrong|not)"
    r"|think again)"
    r"\s*[.!,:;]|can['\u2019]t be (?:it|that|right|the)|\A(?:no|what|nein|qué)\?!|\Aeso no"
    r"|\A(?:no|eso) es (?:así|falso|cierto)|\A違|\Aいいえ|\Aいや",
    re.IGNORECASE,
)
#: Takes back what the same voice has said before.
CONCEDES = re.compile(
    r"\A(?:you(?:['\u2019]re| are) right|my (?:apologies|mistake|bad)|i was (?:wrong|too quick|mistaken)|sorry|but wait"
    r"|correction\b|i stand corrected|du hast recht|sie haben recht|mein fehler|tienes raz[óo]n|me equivoqu[ée]"
    r"|perd[óo]n|(?:vous avez|tu as) raison|je me suis tromp|désolé|pardon|ha[i]? ragione|mi sono sbagliat|scus[ai]"
    r"|(?:tem|tens) razão|me enganei|desculp"
    r"|then it does not explain)|\bi was too quick\b|\A(?:すみません|失礼|訂正|おっしゃる通り)",
    re.IGNORECASE,
)

#: A time that only tells something on the day on which it was said.
RELATIVE = _words(
    r"today|yesterday|tomorrow|tonight|last night|(?:this|next) (?:morning|afternoon|evening|week|month|time|step)",
    r"right now|at the moment|meanwhile|in \w+ minutes|(?:since|on|until|by) (?:the [\w ]{1,30} on )?(?:mon|tues"
    r"|wednes|thurs"
    r"|fri|satur|sun)day|since yesterday|not yet|as yet|(?:is|are) still|so far|earlier today|just now|next",
    r"heute|gestern|vorgestern|morgen (?:um|früh|abend)|kommt morgen|gerade|hoy|ayer|mañana|anoche|ahora mismo"
    r"|esta (?:mañana|tarde|noche|semana)|todavía|de momento|el (?:lunes|martes|miércoles|jueves|viernes)",
    r"aujourd'hui|hier|demain|ce (?:matin|soir)|cette (?:semaine|nuit|après-midi)|la semaine (?:prochaine|dernière)"
    r"|en ce moment|pas encore|pour l'instant|oggi|ieri|domani|stamattina|stasera|questa settimana|al momento"
    r"|non ancora"
    r"|hoje|ontem|amanhã|esta (?:manhã|noite)|ainda não",
)
#: A day of the week that comes again and again, and tells of no certain one.
HABITUAL = _words(
    r"(?:once|twice|\w+ (?:times|runs|days|hours)) a week|(?:every|each) \w+|weekly|(?:mon|tues|wednes|thurs|fri"
    r"|satur|sun)days"
    r"|jeden \w+|pro woche|(?:mon|diens|donners|frei|sams|sonn)tags|cada \w+|los (?:lunes|martes|jueves|viernes)"
    r"|chaque \w+|par semaine|ogni \w+|por semana|毎週"
)
RELATIVE_CJK = re.compile(r"今日|昨日|明日|今朝|今夜|先週|来週|さっき")

#: Complains of the moment: what is wrong now is mended later.
COMPLAINS = _words(
    r"(?:is|are|was|were) (?:too |so |very |always )?(?:degraded|slow|broken|red|down|dead|empty|missing|offline"
    r"|failing|wrong|late"
    r"|cold|gone|blank)",
    r"dies|died|crashes|crashed|hangs|hung|fails|failed|breaks|broke|doesn't|does not|didn't|did not|won't|jumps"
    r"|uploads"
    r"|takes (?:nearly |about |over )?(?:\w+ )?(?:seconds?|minutes?|hours?)|was not amused|stopped",
    r"no (?:funciona|arranca|llega|imprime|sale)|falla|está (?:roto|caído)|se (?:cuelga|cae)|geht nicht|kaputt"
    r"|hängt|fehlt|(?:ist|sind|war|waren) (?:\w+ ){0,3}(?:leer|langsam|voll|weg|zu \w+)",
    r"ne (?:marche|fonctionne|démarre) (?:pas|plus)|plante|est (?:cassée?|en panne)|(?:est|sont|c'est) trop \w+"
    r"|non (?:funziona|parte)|si blocca|è (?:rott[oa]|troppo \w+)|não (?:funciona|arranca|inicia)|trava"
    r"|está (?:quebrad[oa]|fora do ar)|(?:a|ont) du mal",
)

COMPLAINS_CJK = re.compile(r"すぎ|動かな|壊れ|落ち|失敗|エラー|できない|困っ|遅い|言われ")

#: Points to a sentence before it, without which it says little.
BACKWARD = re.compile(
    r"\A(?:it|this|that|they|them|these|those|then|which|he|she|his|her|their|its|there|here|so|also|too|instead"
    r"|otherwise|both|neither|either|one|ones|another|such|first|second|third|none|some|now|next|same|because"
    r"|(?:check|run|use|create|return|add|make|set|call|read|write|handle|ensure|remove|update|allow|show)s"
    r" (?:the|an?|if|whether|that|to|`)"
    r"|nothing|everything|all|not|done|fixed|written|ready|expected|better|found|merged|pushed"
    r"|applied|deployed|reasons?|since|i know|you know|and|or|but|hence|thus|left|still|until|if|when|while"
    r"|(?:after|before) (?:the|that|this)|the (?:day|question|mystery)|we have"
    r"|das|dies|diese|dieser|er|sie|es|dann|dort|hier|beide|also|danke|verstanden|ergänzt"
    r"|eso|esto|esta|este|ese|esa|ellos|ellas|él|ella|entonces|así|además|también|hecho|listo|porque|ambos|luego"
    r"|ils|il (?:est|a|sera|était|doit|peut|va|ne|se|y|en)|il (?:n|s)['\u2019]\w+|elles?|cela|ça|ceci|celui"
    r"|celle|ce|cette|ces|puis|ensuite|donc|alors|aussi|également|ici|voici|voilà"
    r"|c['\u2019]est|d['\u2019]accord|merci|noté|mais|sinon|parce"
    r"|esso|essa|questo|questa|questi|queste|quello|quella|ciò|poi|quindi|allora|inoltre|ecco|fatto|grazie|ma|perché"
    r"|eles?|elas?|isto|isso|aquilo|este|esse|então|depois|assim|também|aqui|feito|pronto|mas"
    r"|(?:yes|no|ok|okay|right|ja|nein|sí|si|vale)(?=\s*[,.!:;])"
    r"|the (?:other|others|same|latter|former|first|second|third|rest|old one|new one)"
    r"|the (?:difference|reason|cause|problem|result|plan|question|answer|point|fix|test|check|figures?|sums?"
    r"|trick|catch"
    r"|rest|idea) (?:is|are|was|were))(?!\w)|\A(?:et|e|sim|oui|non|não|sì)(?=[ ,])"
    r"|\A(?:それ|これ|そう|その|この|あれ|では|じゃあ|ただ"
    r"|でも)",
    re.IGNORECASE,
)
#: Refers to what stands elsewhere, wherever in the sentence.
ELSEWHERE = _words(
    r"the (?:old|new|other|first|second|latter|former) ones?|that one|this one|those two|as (?:said|expected"
    r"|above|before"
    r"|discussed|suggested|you know)|(?:see|the) (?:above|below|following)|there,? too|to that|of that|like that"
    r"|for that",
    r"the thing|which thing|that's|(?:nein|no), (?:halt|wait|espera)",
)
#: A pronoun that stands where the subject or the object of a sentence should. A word begins with a letter and ends
#: before a sign that can not be part of one, so that there is one way only to tell words from signs.
PRONOUN = re.compile(
    r"\A\W*(?:\w[\w'\u2019`-]*[^\w'\u2019`-]\W*){0,3}?(?:it(?! is[:,.!])|them|they|these|those|he|she|him"
    r"|this(?!\s+\w)|that(?=[.,;!]|\Z)"
    r"|eso|esto|ello|los dos|las dos|beides)(?!\w)",
    re.IGNORECASE,
)

#: Orders to whoever works on it: tasks, which are done or not by the time that somebody reads them.
ORDERS = re.compile(
    r"\A(?:please |and |now |also |so |bitte |por favor,? )*(?:add|answer|apply|ask|assume|begin|bind|build|call|cancel"
    r"|change|check|choose|clean|commit|confirm|continue|convert|create|delete|deploy|display|do|ensure|document"
    r"|explain|fetch|find|fix|get|give"
    r"|go|help|implement|install|just|keep going|leave|let(?!['\u2019]s)|list|load|look|make|measure|merge|move|note"
    r"|open|plan|print"
    r"|propose|publish|push|put|read|rehearse|release|remind|remove|rename|replace|report|revert|review|run|say|see"
    r"|send"
    r"|show|start|stop|summari[sz]e|switch|take|talk|tell|test|think|time|try|turn|undo|update|verify|wait|write"
    r"|mach|schreib|prüf|zeig|schau|lauf|setz|mira|haz|pon|busca|revisa|arregla|cambia|añade|escribe|prueba|dime"
    r"|explica"
    r"|manda|comprueba|sube|borra|quita|crea"
    r"|füge|erstelle|ändere|korrigiere|lösche|baue|erkläre|starte"
    r"|(?:ajoute|corrige|change|regarde|lance|supprime|montre|explique|vérifie|cherche|teste|prépare|donne|crée)[rz]?"
    r"|écri(?:s|vez)|fai(?:s|tes)|mets|mettez|envoie|envoyez"
    r"|aggiungi|correggi|cambia|scrivi|guarda|spiega|fai|metti|controlla|cerca|elimina|togli"
    r"|adicion[ae]|corrij[ae]|mud[ae]|escrev[ae]|mostr[ae]|expli(?:ca|que)|faz|faça|verifi(?:ca|que)|apag(?:a|ue)"
    r"|remov[ae])(?!\w)",
    re.IGNORECASE,
)

#: Whoever speaks of what he himself does or thinks keeps a diary, and states nothing.
SELF = re.compile(
    # Not in the name of a host: loki.example.eu.
    r"(?<![\w/])(?<!\w[.-])(?:I|I['\u2019](?:ll|d|ve|m)|[Ii]ch|[Yy]o|[Jj]e|[Ee]u)(?![\w/-])"
    r"|(?<![\w/])[Jj]['\u2019](?=\w)"
    r"|(?<!\w)[Ww]e(?:['\u2019](?:ll|d)| (?:will|need|should|could))(?!\w)|(?<!\w)me (?:equivoqué|parece)|私"
)
MINE = re.compile(
    r"(?<![\w/])(?<!\w[.-])(?:I|I['\u2019](?:ll|d|ve|m)|my|mine|me|[Ii]ch|mein\w{0,2}|mich|mir|[Yy]o|mi|mis|je|mon|mes"
    r"|moi|(?-i:[Ee]u)|meu|minha|mio"
    r"|mia)(?![\w/])",
    re.IGNORECASE,
)
ADDRESSES = _words(r"you|yours?|du|dir|dich|deine?[mnrs]?|usted|tú|te|(?-i:[Tt]us?)|vous|votre|vos|toi|você|tua|teu")

#: An agenda of the session, no statement.
AGENDA = re.compile(
    r"\A(?:(?:first|second|two|three|several|a few) (?:day|things?|questions?|options?|ways|findings)|time for"
    r"|we (?:need|should|could)|i (?:need|want|have|would like|'d like) to|i am (?:thinking|wondering)|what|which"
    r"|how|why|who|where|when|was|wie|warum|qué|cómo|por qué|cuál|quel(?:le)?s?|comment|pourquoi|quand|quale"
    r"|come|qual|quais|quiero \w+r(?:l[aoe]s?)?|je (?:dois|veux|voudrais)|devo|voglio|preciso|quero|we(?: want"
    r"|['\u2019]d like| would like) to"
    r"|we(?:['\u2019]re| are) (?:planning|thinking)"
    # Tells of a person, and not of a table that is called so.
    r"|the user(?:['\u2019]s (?:request|question|message|prompt|instructions?)"
    r"| (?:(?:is|was) (?:ask|request|want|say|look|try)ing|(?:has |had |just |now |also )?(?:wants?|wanted|asks?|asked"
    r"|needs?|needed|says?|said|tells|told|requests?|requested|prefers?|preferred|wishes|confirmed|provided|mentioned"
    r"|would (?:like|prefer)))))(?!\w)|\bwe wanted to\b|\bcontents:|\bare open\b"
    r"|\bis open\b|\btask of\b|\b(?:three|two|four) options\b",
    re.IGNORECASE,
)
