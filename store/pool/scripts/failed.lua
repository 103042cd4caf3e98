-- ejected lets o be away: twice as long each time until it is healthy, a tenth more or less, so that not all come back at once.
local function ejected(o)
  o.state, o.back = 2, now + math.min(longest, eject * 2 ^ o.ejections) * (0.9 + 0.2 * drawn)
  o.ejections = o.ejections + 1
end

local function failed(o)
  o.F = o.F + 1
  if o.row == 0 then o.first = now end
  o.row, o.good, o.clean = o.row + 1, 0, now
  local errors = o.F / (o.C + 20)
  if o.state == 2 then
    if now >= o.back then ejected(o) end
  elseif o.row >= threshold or o.row >= 2 and now - o.first >= span or o.C > 10 and errors > 0.5 then
    ejected(o)
  elseif o.state == 0 and (o.row >= 2 or o.C > 10 and errors > rate) then
    o.state = 1
  end
end
