import json,random,subprocess,sys
from oncelog.base.ids import *
from oncelog.core.groups.consumer import heartbeat as hb
from oncelog.core.groups.consumer.assignors import range as rng, uniform
from oncelog.core.groups.consumer.group import ConsumerGroup
from oncelog.core.groups.consumer.metadata_hash import hash_of_topic
from oncelog.records.internal import consumer_group_records as cgr
import glob
class World:
    def __init__(s,topics): s.set(topics)
    def set(s,topics): s.topics=topics
    def id_of(s,n): t=s.topics.get(n); return None if t is None else TopicId(bytes.fromhex(t[0]))
    def partitions_of(s,i): return next(c for (h,c) in s.topics.values() if bytes.fromhex(h)==i)
    def hash_of(s,n):
        h,c=s.topics[n]; return hash_of_topic(TopicId(bytes.fromhex(h)),n,[["rack0","rack1"] if False else RACKS(p) for p in range(c)])
def RACKS(p): return [f"rack{p%4}",f"rack{(p+1)%4}"]
class Judge:
    def __init__(s): s.p=subprocess.Popen(["java","-XX:TieredStopAtLevel=1","-cp","/tmp/oracle/out:"+":".join(glob.glob("/tmp/oracle/lib/*.jar")),"org.apache.kafka.coordinator.group.Judge"],stdin=subprocess.PIPE,stdout=subprocess.PIPE,stderr=subprocess.DEVNULL,text=True)
    def __call__(s,**op):
        s.p.stdin.write(json.dumps(op)+"\n"); s.p.stdin.flush(); return json.loads(s.p.stdout.readline())
class Ours:
    def __init__(s,topics,interval,max_size):
        s.world=World(topics); s.g=None; s.now=1000
        s.limits=hb.GroupLimits({"range":rng.assign,"uniform":uniform.assign},interval,max_size)
    def apply(s,records):
        for k,v in records:
            if s.g is None: s.g=ConsumerGroup(GroupId("g"))
            s.g.apply(k,v)
    def heartbeat(s,op):
        new=s.g is None
        if new and op["epoch"]!=0: raise hb.Refused(ErrorCode_.GROUP_ID_NOT_FOUND,"")
        g=s.g or ConsumerGroup(GroupId("g"))
        req=hb.ConsumerHeartbeat(GroupId("g"),MemberId(op["member"]),op["epoch"],op.get("instance"),op.get("rack"),op.get("timeout",-1),
            None if op.get("topics") is None else frozenset(op["topics"]),op.get("regex"),op.get("assignor"),
            None if op.get("owned") is None else {TopicId(bytes.fromhex(t)):frozenset(p) for t,p in op["owned"].items()},"client","localhost/127.0.0.1")
        d=hb.decide_leave(g,req,s.world) if op["epoch"]<0 else hb.decide_heartbeat(g,req,s.world,s.limits,s.now)
        if new: s.g=g
        s.apply(d.records)
        return d
from oncelog.base.errors import ErrorCode as ErrorCode_
def dec(records):
    out=[]
    for k,v in records:
        k=bytes.fromhex(k); ver=int.from_bytes(k[:2],"big"); key=cgr.decode_key(ver,k[2:])
        assert cgr.encode_key(key)==k
        val=None if v is None else cgr.decode_value(key,bytes.fromhex(v))
        if val is not None and not isinstance(val,(cgr.MemberValue,)) :
            assert len(cgr.encode_value(val))==len(bytes.fromhex(v)),(key,val,v,cgr.encode_value(val).hex())
        out.append((key,norm(val)))
    return out
def norm(v):
    if isinstance(v,cgr.TargetMemberValue): return ("T",{t:tuple(sorted(p)) for t,p in v.partitions.items()})
    if isinstance(v,cgr.CurrentMemberValue): return ("C",v.epoch,v.previous_epoch,int(v.state),{t:dict(p) for t,p in v.assigned.items()},{t:dict(p) for t,p in v.pending_revocation.items()})
    if isinstance(v,cgr.MemberValue): return v._replace(topics=tuple(sorted(v.topics)))
    if isinstance(v,cgr.RegexValue): return v._replace(topics=tuple(sorted(v.topics)))
    return v
def order(rs):
    # target records of members come from a hash map: sort runs of them
    return sorted(rs,key=lambda r:(type(r[0]).__name__,)+tuple(r[0])) 
def history(j,seed,steps=40,verbose=False):
    e=random.Random(seed)
    topics={f"t{i}":[bytes([seed%250+1,i+1]*8).hex(),e.randint(1,6)] for i in range(e.randint(1,4))}
    interval=e.choice([0,0,1000]); max_size=e.choice([3,100])
    j(op="new",topics=topics,interval=interval,max_size=max_size)
    o=Ours(dict(topics),interval,max_size)
    members={} # id -> dict(epoch,owned,instance)
    log=[]
    for step in range(steps):
        kind=e.random()
        if kind<0.1:
            ms=e.choice([1,500,1000,5000]); op=dict(op="sleep",ms=ms); r=j(**op); o.now+=ms
            log.append((op,r))
            if any(t["records"] for t in r["timers"]):
                for t in r["timers"]: 
                    o.apply([(k,None if v is None else cgr.decode_value(k,bytes.fromhex(v))) for k,v in ((cgr.decode_key(int.from_bytes(bytes.fromhex(a)[:2],"big"),bytes.fromhex(a)[2:]),b) for a,b in t["records"])])
            continue
        if kind<0.15:
            topics=dict(topics); n=e.choice([*topics,"new%d"%step]); 
            topics[n]=[topics[n][0],topics[n][1]+1] if n in topics else [bytes([seed%250+1,100+step]*8).hex(),2]
            j(op="topics",topics=topics); o.world.set(topics)
            if o.g: o.g.metadata_refresh_epoch=None
            log.append(("topics",topics)); continue
        if not members or kind<0.35:
            m=f"m{e.randint(0,5)}"; inst={"m0":"i0","m1":"i0","m2":"i1","m3":"i1"}.get(m)
            op=dict(op="heartbeat",group="g",member=m,epoch=0,timeout=e.choice([3000,5000]),topics=e.sample(list(topics),e.randint(1,len(topics))),owned={},instance=inst,assignor=e.choice([None,None,"range"]))
        else:
            m=e.choice(list(members)); st=members[m]
            op=dict(op="heartbeat",group="g",member=m,epoch=st["epoch"] if e.random()<.9 else st["epoch"]+e.choice([-1,1]),instance=st["instance"])
            x=e.random()
            if x<0.1: op["epoch"]=-1
            elif x<0.15 and st["instance"]: op["epoch"]=-2
            if op["epoch"]>=0:
                if e.random()<0.7: op["owned"]=st["owned"] if e.random()<.9 else {}
                if e.random()<0.15: op["topics"]=e.sample(list(topics),e.randint(1,len(topics)))
                if e.random()<0.1: op["timeout"]=5000
            if op["epoch"]==0 : op.update(timeout=5000,owned={},topics=op.get("topics") or list(topics))
        r=j(**op); log.append((op,r))
        try: d=o.heartbeat(op); mine=None
        except hb.Refused as x: mine=x; d=None
        if verbose: print(op,"\n   ",r if 'records' not in r else {**r,'records':dec(r['records'])})
        def fail(why,*a):
            print("SEED",seed,"STEP",step,why,*a,sep="\n  "); print("op",op); return False
        if "error" in r:
            if mine is None or mine.code.name!=r["error"]: return fail("error",r,mine and mine.code, d and d.answer)
            if mine.args[0]!=r["message"] and r["error"] not in("GROUP_ID_NOT_FOUND",): return fail("message",r["message"],mine.args[0])
            if r["error"] in("FENCED_MEMBER_EPOCH","UNKNOWN_MEMBER_ID","FENCED_INSTANCE_ID") and e.random()<.5: members.pop(m,None)
            continue
        if mine: return fail("we refused",mine.code,mine.args,r)
        a=d.answer
        ass=None if a.assignment is None else {t.hex():sorted(p) for t,p in a.assignment.items()}
        if (a.member_id,a.epoch,ass)!=(r["member"],r["epoch"],r.get("assignment")): return fail("answer",(a.member_id,a.epoch,ass),r)
        theirs=dec(r["records"]); ours=[(k,norm(v)) for k,v in d.records]
        if ours!=theirs and order(ours)!=order(theirs):
            return fail("records",*["theirs %s"%(x,) for x in theirs],*["ours   %s"%(x,) for x in ours])
        if [type(k) for k,_ in ours]!=[type(k) for k,_ in theirs]: return fail("order of records",[type(k).__name__ for k,_ in ours],[type(k).__name__ for k,_ in theirs])
        if op["epoch"]<0: 
            if op["epoch"]==-1: members.pop(m,None)
            else: members[m]["epoch"]=0
        else:
            st=members.setdefault(m,dict(epoch=0,owned={},instance=op.get("instance"))); st["epoch"]=a.epoch
            if ass is not None and e.random()<0.8: st["owned"]=ass
    return True
if __name__=="__main__":
    j=Judge(); n=int(sys.argv[1]); start=int(sys.argv[2]) if len(sys.argv)>2 else 0; bad=0
    for s in range(start,start+n):
        if not history(j,s): bad+=1
        if bad>=int(sys.argv[3] if len(sys.argv)>3 else 2): break
    print("histories",s-start+1,"bad",bad)
