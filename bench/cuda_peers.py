import torch,time
torch.backends.cuda.matmul.allow_tf32=False
def med(f,n=30):
    for _ in range(5): f()
    torch.cuda.synchronize(); t=[]
    for _ in range(n):
        b=time.perf_counter(); f(); torch.cuda.synchronize(); t.append(time.perf_counter()-b)
    t.sort(); return t[n//2]*1e3
x=torch.rand(1<<26,device='cuda')*2-1
r=x.view(8192,8192); w=x.view(65536,1024)
m=torch.rand(2048,2048,device='cuda')
c=torch.compile
for name,fn,a in [('sincos 64M',lambda a:torch.sin(torch.cos(a)),x),('gelu 64M',lambda a:torch.nn.functional.gelu(a),x),('softmax 8192',lambda a:torch.softmax(a,-1),r),('softmax 1024',lambda a:torch.softmax(a,-1),w),('layernorm 8192',lambda a:torch.nn.functional.layer_norm(a,(8192,)),r),('sum rows',lambda a:a.sum(1),r),('sum cols',lambda a:a.sum(0),r),('sum all',lambda a:a.sum(),x),('transpose+1',lambda a:(a.t()+1).contiguous(),r)]:
    g=c(fn); print('%-16s compiled %.3f ms eager %.3f ms'%(name,med(lambda:g(a)),med(lambda:fn(a))),flush=True)
print('matmul f32 2048 %.3f ms'%med(lambda:m@m))
b=torch.empty_like(x.repeat(4)); a=x.repeat(4)
print('copy 1GiB %.0f GB/s'%(8*a.numel()/med(lambda:b.copy_(a))*1e-6))
